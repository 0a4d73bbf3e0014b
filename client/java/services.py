"""Generates the service classes of the Java stubs from a descriptor set: `python services.py SET FOLDER`.

A service `AgentService` becomes `AgentServiceGrpc` with its name and the descriptors of its methods, named
as gRPC's own generator names them. That one is a native program that cannot be had for every platform.
"""

import sys
from pathlib import Path

from google.protobuf import descriptor_pb2 as pb

CLASS = """package {package};

/** The methods of the service {{@code {service}}}. */
@javax.annotation.processing.Generated("services.py")
public final class {name}Grpc {{
  /** The full name of the service. */
  public static final String SERVICE_NAME = "{service}";

{fields}
  private {name}Grpc() {{}}

  private static <Q extends com.google.protobuf.Message, R extends com.google.protobuf.Message>
      io.grpc.MethodDescriptor<Q, R> method(
          io.grpc.MethodDescriptor.MethodType type, String name, Q request, R response) {{
    return io.grpc.MethodDescriptor.<Q, R>newBuilder()
        .setType(type)
        .setFullMethodName(io.grpc.MethodDescriptor.generateFullMethodName(SERVICE_NAME, name))
        .setSampledToLocalTracing(true)
        .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(request))
        .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(response))
        .build();
  }}
{getters}}}
"""

FIELD = """  private static final io.grpc.MethodDescriptor<{request}, {response}> {constant} =
      method(
          io.grpc.MethodDescriptor.MethodType.{kind},
          "{name}",
          {request}.getDefaultInstance(),
          {response}.getDefaultInstance());
"""

GETTER = """
  /** The method {{@code {name}}}. */
  public static io.grpc.MethodDescriptor<{request}, {response}> get{name}Method() {{
    return {constant};
  }}
"""


def constant(name: str) -> str:
    """A name in CamelCase as one in UPPER_SNAKE_CASE."""
    return "".join(f"_{sign}" if sign.isupper() else sign for sign in name).strip("_").upper()


def service_class(file: pb.FileDescriptorProto, service: pb.ServiceDescriptorProto) -> str:
    """The source of a service's class."""
    fields, getters = [], []
    for method in service.method:
        if method.client_streaming:
            raise NotImplementedError(f"{service.name}.{method.name}: requests that are streamed")
        words = {
            "name": method.name,
            "constant": constant(method.name),
            "kind": "SERVER_STREAMING" if method.server_streaming else "UNARY",
            "request": method.input_type.rpartition(".")[2],
            "response": method.output_type.rpartition(".")[2],
        }
        fields.append(FIELD.format(**words))
        getters.append(GETTER.format(**words))
    return CLASS.format(
        package=file.options.java_package,
        service=f"{file.package}.{service.name}",
        name=service.name,
        fields="\n".join(fields),
        getters="".join(getters),
    )


def main(descriptors: Path, output: Path) -> None:
    """Write the class of every service of the descriptor set."""
    for file in pb.FileDescriptorSet.FromString(descriptors.read_bytes()).file:
        for service in file.service:
            folder = output.joinpath(*file.options.java_package.split("."))
            (folder / f"{service.name}Grpc.java").write_text(service_class(file, service))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
