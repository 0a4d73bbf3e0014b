package dev.entracte.v1;

/** The methods of the service {@code entracte.v1.RunService}. */
@javax.annotation.processing.Generated("services.py")
public final class RunServiceGrpc {
  /** The full name of the service. */
  public static final String SERVICE_NAME = "entracte.v1.RunService";

  private static final io.grpc.MethodDescriptor<GetRunRequest, GetRunResponse> GET_RUN =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "GetRun",
          GetRunRequest.getDefaultInstance(),
          GetRunResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<ListRunsRequest, ListRunsResponse> LIST_RUNS =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "ListRuns",
          ListRunsRequest.getDefaultInstance(),
          ListRunsResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<WatchRunRequest, WatchRunResponse> WATCH_RUN =
      method(
          io.grpc.MethodDescriptor.MethodType.SERVER_STREAMING,
          "WatchRun",
          WatchRunRequest.getDefaultInstance(),
          WatchRunResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<CancelRunRequest, CancelRunResponse> CANCEL_RUN =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "CancelRun",
          CancelRunRequest.getDefaultInstance(),
          CancelRunResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<DeleteRunRequest, DeleteRunResponse> DELETE_RUN =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "DeleteRun",
          DeleteRunRequest.getDefaultInstance(),
          DeleteRunResponse.getDefaultInstance());

  private RunServiceGrpc() {}

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

  /** The method {@code GetRun}. */
  public static io.grpc.MethodDescriptor<GetRunRequest, GetRunResponse> getGetRunMethod() {
    return GET_RUN;
  }

  /** The method {@code ListRuns}. */
  public static io.grpc.MethodDescriptor<ListRunsRequest, ListRunsResponse> getListRunsMethod() {
    return LIST_RUNS;
  }

  /** The method {@code WatchRun}. */
  public static io.grpc.MethodDescriptor<WatchRunRequest, WatchRunResponse> getWatchRunMethod() {
    return WATCH_RUN;
  }

  /** The method {@code CancelRun}. */
  public static io.grpc.MethodDescriptor<CancelRunRequest, CancelRunResponse> getCancelRunMethod() {
    return CANCEL_RUN;
  }

  /** The method {@code DeleteRun}. */
  public static io.grpc.MethodDescriptor<DeleteRunRequest, DeleteRunResponse> getDeleteRunMethod() {
    return DELETE_RUN;
  }
}
