package dev.entracte.v1;

/** The methods of the service {@code entracte.v1.InboxService}. */
@javax.annotation.processing.Generated("services.py")
public final class InboxServiceGrpc {
  /** The full name of the service. */
  public static final String SERVICE_NAME = "entracte.v1.InboxService";

  private static final io.grpc.MethodDescriptor<ListPendingCallsRequest, ListPendingCallsResponse> LIST_PENDING_CALLS =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "ListPendingCalls",
          ListPendingCallsRequest.getDefaultInstance(),
          ListPendingCallsResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<GetPendingCallRequest, GetPendingCallResponse> GET_PENDING_CALL =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "GetPendingCall",
          GetPendingCallRequest.getDefaultInstance(),
          GetPendingCallResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<WatchPendingCallsRequest, WatchPendingCallsResponse> WATCH_PENDING_CALLS =
      method(
          io.grpc.MethodDescriptor.MethodType.SERVER_STREAMING,
          "WatchPendingCalls",
          WatchPendingCallsRequest.getDefaultInstance(),
          WatchPendingCallsResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<ClaimPendingCallRequest, ClaimPendingCallResponse> CLAIM_PENDING_CALL =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "ClaimPendingCall",
          ClaimPendingCallRequest.getDefaultInstance(),
          ClaimPendingCallResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<ReleasePendingCallRequest, ReleasePendingCallResponse> RELEASE_PENDING_CALL =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "ReleasePendingCall",
          ReleasePendingCallRequest.getDefaultInstance(),
          ReleasePendingCallResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<ListDecisionsRequest, ListDecisionsResponse> LIST_DECISIONS =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "ListDecisions",
          ListDecisionsRequest.getDefaultInstance(),
          ListDecisionsResponse.getDefaultInstance());

  private InboxServiceGrpc() {}

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

  /** The method {@code ListPendingCalls}. */
  public static io.grpc.MethodDescriptor<ListPendingCallsRequest, ListPendingCallsResponse> getListPendingCallsMethod() {
    return LIST_PENDING_CALLS;
  }

  /** The method {@code GetPendingCall}. */
  public static io.grpc.MethodDescriptor<GetPendingCallRequest, GetPendingCallResponse> getGetPendingCallMethod() {
    return GET_PENDING_CALL;
  }

  /** The method {@code WatchPendingCalls}. */
  public static io.grpc.MethodDescriptor<WatchPendingCallsRequest, WatchPendingCallsResponse> getWatchPendingCallsMethod() {
    return WATCH_PENDING_CALLS;
  }

  /** The method {@code ClaimPendingCall}. */
  public static io.grpc.MethodDescriptor<ClaimPendingCallRequest, ClaimPendingCallResponse> getClaimPendingCallMethod() {
    return CLAIM_PENDING_CALL;
  }

  /** The method {@code ReleasePendingCall}. */
  public static io.grpc.MethodDescriptor<ReleasePendingCallRequest, ReleasePendingCallResponse> getReleasePendingCallMethod() {
    return RELEASE_PENDING_CALL;
  }

  /** The method {@code ListDecisions}. */
  public static io.grpc.MethodDescriptor<ListDecisionsRequest, ListDecisionsResponse> getListDecisionsMethod() {
    return LIST_DECISIONS;
  }
}
