package dev.entracte.v1;

/** The methods of the service {@code entracte.v1.ThreadService}. */
@javax.annotation.processing.Generated("services.py")
public final class ThreadServiceGrpc {
  /** The full name of the service. */
  public static final String SERVICE_NAME = "entracte.v1.ThreadService";

  private static final io.grpc.MethodDescriptor<CreateThreadRequest, CreateThreadResponse> CREATE_THREAD =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "CreateThread",
          CreateThreadRequest.getDefaultInstance(),
          CreateThreadResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<GetThreadRequest, GetThreadResponse> GET_THREAD =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "GetThread",
          GetThreadRequest.getDefaultInstance(),
          GetThreadResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<ListThreadsRequest, ListThreadsResponse> LIST_THREADS =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "ListThreads",
          ListThreadsRequest.getDefaultInstance(),
          ListThreadsResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<UpdateThreadRequest, UpdateThreadResponse> UPDATE_THREAD =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "UpdateThread",
          UpdateThreadRequest.getDefaultInstance(),
          UpdateThreadResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<DeleteThreadRequest, DeleteThreadResponse> DELETE_THREAD =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "DeleteThread",
          DeleteThreadRequest.getDefaultInstance(),
          DeleteThreadResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<ListThreadMessagesRequest, ListThreadMessagesResponse> LIST_THREAD_MESSAGES =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "ListThreadMessages",
          ListThreadMessagesRequest.getDefaultInstance(),
          ListThreadMessagesResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<GetWorkingMemoryRequest, GetWorkingMemoryResponse> GET_WORKING_MEMORY =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "GetWorkingMemory",
          GetWorkingMemoryRequest.getDefaultInstance(),
          GetWorkingMemoryResponse.getDefaultInstance());

  private static final io.grpc.MethodDescriptor<UpdateWorkingMemoryRequest, UpdateWorkingMemoryResponse> UPDATE_WORKING_MEMORY =
      method(
          io.grpc.MethodDescriptor.MethodType.UNARY,
          "UpdateWorkingMemory",
          UpdateWorkingMemoryRequest.getDefaultInstance(),
          UpdateWorkingMemoryResponse.getDefaultInstance());

  private ThreadServiceGrpc() {}

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

  /** The method {@code CreateThread}. */
  public static io.grpc.MethodDescriptor<CreateThreadRequest, CreateThreadResponse> getCreateThreadMethod() {
    return CREATE_THREAD;
  }

  /** The method {@code GetThread}. */
  public static io.grpc.MethodDescriptor<GetThreadRequest, GetThreadResponse> getGetThreadMethod() {
    return GET_THREAD;
  }

  /** The method {@code ListThreads}. */
  public static io.grpc.MethodDescriptor<ListThreadsRequest, ListThreadsResponse> getListThreadsMethod() {
    return LIST_THREADS;
  }

  /** The method {@code UpdateThread}. */
  public static io.grpc.MethodDescriptor<UpdateThreadRequest, UpdateThreadResponse> getUpdateThreadMethod() {
    return UPDATE_THREAD;
  }

  /** The method {@code DeleteThread}. */
  public static io.grpc.MethodDescriptor<DeleteThreadRequest, DeleteThreadResponse> getDeleteThreadMethod() {
    return DELETE_THREAD;
  }

  /** The method {@code ListThreadMessages}. */
  public static io.grpc.MethodDescriptor<ListThreadMessagesRequest, ListThreadMessagesResponse> getListThreadMessagesMethod() {
    return LIST_THREAD_MESSAGES;
  }

  /** The method {@code GetWorkingMemory}. */
  public static io.grpc.MethodDescriptor<GetWorkingMemoryRequest, GetWorkingMemoryResponse> getGetWorkingMemoryMethod() {
    return GET_WORKING_MEMORY;
  }

  /** The method {@code UpdateWorkingMemory}. */
  public static io.grpc.MethodDescriptor<UpdateWorkingMemoryRequest, UpdateWorkingMemoryResponse> getUpdateWorkingMemoryMethod() {
    return UPDATE_WORKING_MEMORY;
  }
}
