package dev.entracte.v1;

/** The methods of the service {@code entracte.v1.AgentService}. */
@javax.annotation.processing.Generated("services.py")
public final class AgentServiceGrpc {
  /** The full name of the service. */
  public static final String SERVICE_NAME = "entracte.v1.AgentService";

  private static final io.grpc.MethodDescriptor<GenerateRequest, GenerateResponse> GENERATE =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "Generate",
          GenerateRequest.getDefaultInstance(),
          GenerateResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<StreamRequest, StreamResponse> STREAM =
      method(
          io.grpc.MethodDescriptor.MethodType.SERVER_STREAMING,
          "Stream",
          StreamRequest.getDefaultInstance(),
          StreamResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<ResumeRequest, ResumeResponse> RESUME =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "Resume",
          ResumeRequest.getDefaultInstance(),
          ResumeResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<ApproveRequest, ApproveResponse> APPROVE =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "Approve",
          ApproveRequest.getDefaultInstance(),
          ApproveResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<DeclineRequest, DeclineResponse> DECLINE =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "Decline",
          DeclineRequest.getDefaultInstance(),
          DeclineResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<SubmitToolResultRequest, SubmitToolResultResponse> SUBMIT_TOOL_RESULT =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "SubmitToolResult",
          SubmitToolResultRequest.getDefaultInstance(),
          SubmitToolResultResponse.getDefaultInstance());

  private AgentServiceGrpc() {}

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

  /** The method {@code Generate}. */
  public static io.grpc.MethodDescriptor<GenerateRequest, GenerateResponse> getGenerateMethod() {
    return GENERATE;
  }

  /** The method {@code Stream}. */
  public static io.grpc.MethodDescriptor<StreamRequest, StreamResponse> getStreamMethod() {
    return STREAM;
  }

  /** The method {@code Resume}. */
  public static io.grpc.MethodDescriptor<ResumeRequest, ResumeResponse> getResumeMethod() {
    return RESUME;
  }

  /** The method {@code Approve}. */
  public static io.grpc.MethodDescriptor<ApproveRequest, ApproveResponse> getApproveMethod() {
    return APPROVE;
  }

  /** The method {@code Decline}. */
  public static io.grpc.MethodDescriptor<DeclineRequest, DeclineResponse> getDeclineMethod() {
    return DECLINE;
  }

  /** The method {@code SubmitToolResult}. */
  public static io.grpc.MethodDescriptor<SubmitToolResultRequest, SubmitToolResultResponse> getSubmitToolResultMethod() {
    return SUBMIT_TOOL_RESULT;
  }
}
