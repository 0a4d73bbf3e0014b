package dev.entracte.v1;

/** The methods of the service {@code entracte.v1.WorkerService}. */
@javax.annotation.processing.Generated("services.py")
public final class WorkerServiceGrpc {
  /** The full name of the service. */
  public static final String SERVICE_NAME = "entracte.v1.WorkerService";

  private static final io.grpc.MethodDescriptor<PullWorkRequest, PullWorkResponse> PULL_WORK =
      method(
          io.grpc.MethodDescriptor.MethodType.SERVER_STREAMING,
          "PullWork",
          PullWorkRequest.getDefaultInstance(),
          PullWorkResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<CompleteWorkRequest, CompleteWorkResponse> COMPLETE_WORK =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "CompleteWork",
          CompleteWorkRequest.getDefaultInstance(),
          CompleteWorkResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<ExtendWorkRequest, ExtendWorkResponse> EXTEND_WORK =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "ExtendWork",
          ExtendWorkRequest.getDefaultInstance(),
          ExtendWorkResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<AbandonWorkRequest, AbandonWorkResponse> ABANDON_WORK =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "AbandonWork",
          AbandonWorkRequest.getDefaultInstance(),
          AbandonWorkResponse.getDefaultInstance());

  private WorkerServiceGrpc() {}

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

  /** The method {@code PullWork}. */
  public static io.grpc.MethodDescriptor<PullWorkRequest, PullWorkResponse> getPullWorkMethod() {
    return PULL_WORK;
  }

  /** The method {@code CompleteWork}. */
  public static io.grpc.MethodDescriptor<CompleteWorkRequest, CompleteWorkResponse> getCompleteWorkMethod() {
    return COMPLETE_WORK;
  }

  /** The method {@code ExtendWork}. */
  public static io.grpc.MethodDescriptor<ExtendWorkRequest, ExtendWorkResponse> getExtendWorkMethod() {
    return EXTEND_WORK;
  }

  /** The method {@code AbandonWork}. */
  public static io.grpc.MethodDescriptor<AbandonWorkRequest, AbandonWorkResponse> getAbandonWorkMethod() {
    return ABANDON_WORK;
  }
}
