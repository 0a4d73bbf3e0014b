package dev.entracte;

import com.google.protobuf.Any;
import com.google.protobuf.Message;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import dev.entracte.v1.AgentServiceGrpc;
import dev.entracte.v1.RunServiceGrpc;
import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CopyOnWriteArrayList;

/** A server that answers what it is told to, call by call, and keeps what it was asked. */
final class FakeServer implements AutoCloseable {
  /** What is done about one call. */
  interface Answer {
    void to(StreamObserver<Message> observer);
  }

  final List<Message> requests = new CopyOnWriteArrayList<>();
  final List<Metadata> metadata = new CopyOnWriteArrayList<>();
  private final Queue<Answer> answers = new ConcurrentLinkedQueue<>();
  private final Server server;
  private volatile Answer otherwise =
      observer -> observer.onError(refusal(Status.Code.INTERNAL, "INTERNAL", null));

  FakeServer() throws IOException {
    ServerServiceDefinition.Builder agents =
        ServerServiceDefinition.builder(AgentServiceGrpc.SERVICE_NAME);
    add(agents, AgentServiceGrpc.getGenerateMethod());
    add(agents, AgentServiceGrpc.getStreamMethod());
    add(agents, AgentServiceGrpc.getResumeMethod());
    add(agents, AgentServiceGrpc.getApproveMethod());
    add(agents, AgentServiceGrpc.getDeclineMethod());
    add(agents, AgentServiceGrpc.getSubmitToolResultMethod());
    ServerServiceDefinition.Builder runs =
        ServerServiceDefinition.builder(RunServiceGrpc.SERVICE_NAME);
    add(runs, RunServiceGrpc.getGetRunMethod());
    add(runs, RunServiceGrpc.getListRunsMethod());
    add(runs, RunServiceGrpc.getWatchRunMethod());
    add(runs, RunServiceGrpc.getCancelRunMethod());
    add(runs, RunServiceGrpc.getDeleteRunMethod());
    server =
        Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
            .addService(agents.build())
            .addService(runs.build())
            .intercept(new Keeper())
            .build()
            .start();
  }

  /** A client with pauses of milliseconds and a patience of a second. */
  EntracteClient connect() {
    return EntracteClient.builder("127.0.0.1:" + server.getPort())
        .apiKey("secret")
        .limits(
            new Backoff.Limits(
                Duration.ofMillis(1), Duration.ofMillis(10), 4, Duration.ofSeconds(1)))
        .build();
  }

  FakeServer then(Answer answer) {
    answers.add(answer);
    return this;
  }

  /** What is done about calls for which there is no answer of their own. */
  FakeServer otherwise(Answer answer) {
    otherwise = answer;
    return this;
  }

  /** Answers with messages and a good end. */
  FakeServer then(Message... messages) {
    return then(
        observer -> {
          for (Message message : messages) {
            observer.onNext(message);
          }
          observer.onCompleted();
        });
  }

  /** Answers with messages and an error. */
  FakeServer thenFail(RuntimeException error, Message... messages) {
    return then(
        observer -> {
          for (Message message : messages) {
            observer.onNext(message);
          }
          observer.onError(error);
        });
  }

  /** An error as the real server makes them. */
  static RuntimeException refusal(Status.Code code, String reason, Duration retryAfter) {
    com.google.rpc.Status.Builder status =
        com.google.rpc.Status.newBuilder()
            .setCode(code.value())
            .setMessage("because")
            .addDetails(
                Any.pack(
                    ErrorInfo.newBuilder()
                        .setDomain("entracte.dev")
                        .setReason(reason)
                        .putMetadata("key", "value")
                        .build()));
    if (retryAfter != null) {
      status.addDetails(
          Any.pack(RetryInfo.newBuilder().setRetryDelay(Wire.duration(retryAfter)).build()));
    }
    return StatusProto.toStatusRuntimeException(status.build());
  }

  @Override
  public void close() {
    server.shutdownNow();
  }

  private <Q extends Message, R extends Message> void add(
      ServerServiceDefinition.Builder service, MethodDescriptor<Q, R> method) {
    if (method.getType() == MethodDescriptor.MethodType.UNARY) {
      service.addMethod(method, ServerCalls.asyncUnaryCall(this::handle));
    } else {
      service.addMethod(method, ServerCalls.asyncServerStreamingCall(this::handle));
    }
  }

  private <Q extends Message, R extends Message> void handle(Q request, StreamObserver<R> out) {
    requests.add(request);
    @SuppressWarnings("unchecked") // a test answers with the messages of the method
    StreamObserver<Message> observer = (StreamObserver<Message>) out;
    Answer answer = answers.poll();
    (answer == null ? otherwise : answer).to(observer);
  }

  private final class Keeper implements ServerInterceptor {
    @Override
    public <Q, R> ServerCall.Listener<Q> interceptCall(
        ServerCall<Q, R> call, Metadata headers, ServerCallHandler<Q, R> next) {
      metadata.add(headers);
      return next.startCall(call, headers);
    }
  }
}
