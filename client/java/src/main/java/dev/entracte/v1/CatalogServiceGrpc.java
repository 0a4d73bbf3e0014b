package dev.entracte.v1;

/** The methods of the service {@code entracte.v1.CatalogService}. */
@javax.annotation.processing.Generated("services.py")
public final class CatalogServiceGrpc {
  /** The full name of the service. */
  public static final String SERVICE_NAME = "entracte.v1.CatalogService";

  private static final io.grpc.MethodDescriptor<ListAgentsRequest, ListAgentsResponse> LIST_AGENTS =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "ListAgents",
          ListAgentsRequest.getDefaultInstance(),
          ListAgentsResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<GetAgentRequest, GetAgentResponse> GET_AGENT =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "GetAgent",
          GetAgentRequest.getDefaultInstance(),
          GetAgentResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<CreateAgentVersionRequest, CreateAgentVersionResponse> CREATE_AGENT_VERSION =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "CreateAgentVersion",
          CreateAgentVersionRequest.getDefaultInstance(),
          CreateAgentVersionResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<PublishAgentVersionRequest, PublishAgentVersionResponse> PUBLISH_AGENT_VERSION =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "PublishAgentVersion",
          PublishAgentVersionRequest.getDefaultInstance(),
          PublishAgentVersionResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<ArchiveAgentVersionRequest, ArchiveAgentVersionResponse> ARCHIVE_AGENT_VERSION =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "ArchiveAgentVersion",
          ArchiveAgentVersionRequest.getDefaultInstance(),
          ArchiveAgentVersionResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<ListAgentVersionsRequest, ListAgentVersionsResponse> LIST_AGENT_VERSIONS =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "ListAgentVersions",
          ListAgentVersionsRequest.getDefaultInstance(),
          ListAgentVersionsResponse.getDefaultInstance());

  private CatalogServiceGrpc() {}

  private static <Q extends com.google.protobuf.Message, R extends com.google.protobuf.Message>
      io.grpc.MethodDescriptor<Q, R> method(
          io.grpc.MethodDescriptor.MethodType type, String name, Q request, R response) {
    return io.grpc.MethodDescriptor.<Q, R>newBuilder()
        .setType(type)
        .setFullMethodName(io.grpc.MethodDescriptor.generateFullMethodName(SERVICE_NAME, name))
        .setSampledToLocalTracing(true)
        .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(request))
        .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(response))
        .build();
  }

  /** The method {@code ListAgents}. */
  public static io.grpc.MethodDescriptor<ListAgentsRequest, ListAgentsResponse> getListAgentsMethod() {
    return LIST_AGENTS;
  }

  /** The method {@code GetAgent}. */
  public static io.grpc.MethodDescriptor<GetAgentRequest, GetAgentResponse> getGetAgentMethod() {
    return GET_AGENT;
  }

  /** The method {@code CreateAgentVersion}. */
  public static io.grpc.MethodDescriptor<CreateAgentVersionRequest, CreateAgentVersionResponse> getCreateAgentVersionMethod() {
    return CREATE_AGENT_VERSION;
  }

  /** The method {@code PublishAgentVersion}. */
  public static io.grpc.MethodDescriptor<PublishAgentVersionRequest, PublishAgentVersionResponse> getPublishAgentVersionMethod() {
    return PUBLISH_AGENT_VERSION;
  }

  /** The method {@code ArchiveAgentVersion}. */
  public static io.grpc.MethodDescriptor<ArchiveAgentVersionRequest, ArchiveAgentVersionResponse> getArchiveAgentVersionMethod() {
    return ARCHIVE_AGENT_VERSION;
  }

  /** The method {@code ListAgentVersions}. */
  public static io.grpc.MethodDescriptor<ListAgentVersionsRequest, ListAgentVersionsResponse> getListAgentVersionsMethod() {
    return LIST_AGENT_VERSIONS;
  }
}
