package dev.entracte;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import com.google.protobuf.Message;
import com.google.protobuf.UnknownFieldSet;
import dev.entracte.errors.CancelledException;
import dev.entracte.errors.DeadlineExceededException;
import dev.entracte.errors.EntracteException;
import dev.entracte.errors.ErrorDetails;
import dev.entracte.errors.NotFoundException;
import dev.entracte.errors.SequenceGapException;
import dev.entracte.errors.StreamBrokenException;
import dev.entracte.errors.TooManyRunsException;
import dev.entracte.errors.UnknownChunkException;
import dev.entracte.v1.ErrorReason;
import dev.entracte.v1.FinishChunk;
import dev.entracte.v1.GenerateRequest;
import dev.entracte.v1.GenerateResponse;
import dev.entracte.v1.GetRunResponse;
import dev.entracte.v1.StepStartChunk;
import dev.entracte.v1.StreamResponse;
import dev.entracte.v1.TextDeltaChunk;
import dev.entracte.v1.WatchRunRequest;
import dev.entracte.v1.WatchRunResponse;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.stub.StreamObserver;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What the SDK makes of a server that breaks off, refuses, or is newer than it. */
@Timeout(30)
class FakeServerTest {
  private FakeServer server;
  private EntracteClient client;

  @BeforeEach
  void start() throws Exception {
    server = new FakeServer();
    client = server.connect();
  }

  @AfterEach
  void stop() {
    client.close();
    server.close();
  }

  private static dev.entracte.v1.Chunk.Builder chunk(long sequence) {
    return dev.entracte.v1.Chunk.newBuilder()
        .setRunId("r1")
        .setSequence(sequence)
        .setStep(1)
        .setAttempt(1);
  }

  private static dev.entracte.v1.Chunk.Builder delta(long sequence, String text) {
    return chunk(sequence).setTextDelta(TextDeltaChunk.newBuilder().setText(text));
  }

  private static dev.entracte.v1.Chunk.Builder finish(long sequence) {
    return chunk(sequence)
        .setFinish(
            FinishChunk.newBuilder().setReason(dev.entracte.v1.FinishReason.FINISH_REASON_STOP));
  }

  /** A chunk of a type from the future. */
  private static dev.entracte.v1.Chunk.Builder unknown(long sequence) {
    UnknownFieldSet.Field field =
        UnknownFieldSet.Field.newBuilder().addLengthDelimited(ByteString.EMPTY).build();
    return chunk(sequence)
        .setUnknownFields(UnknownFieldSet.newBuilder().addField(900, field).build());
  }

  private static StreamResponse streamed(dev.entracte.v1.Chunk.Builder... chunks) {
    StreamResponse.Builder response = StreamResponse.newBuilder();
    List.of(chunks).forEach(response::addChunks);
    return response.build();
  }

  private static WatchRunResponse watched(dev.entracte.v1.Chunk.Builder... chunks) {
    WatchRunResponse.Builder response = WatchRunResponse.newBuilder();
    List.of(chunks).forEach(response::addChunks);
    return response.build();
  }

  @Test
  void aBrokenStreamIsFollowedFromWhereItBroke() {
    server
        .thenFail(Status.UNAVAILABLE.asRuntimeException())
        .thenFail(
            FakeServer.refusal(Status.Code.UNAVAILABLE, "SERVER_DRAINING", Duration.ofMillis(2)),
            streamed(delta(1, "void ")),
            streamed(delta(2, "words")))
        .then(
            watched(
                delta(2, "words"),
                chunk(3).setAttempt(2).setStepStart(StepStartChunk.getDefaultInstance()),
                unknown(4).setIgnorable(true)),
            WatchRunResponse.newBuilder().setThroughSequence(4).build())
        .then(watched(delta(5, "good").setAttempt(2), finish(6).setAttempt(2)));
    List<Long> seen = new ArrayList<>();
    try (RunStream stream =
        client.agent("a").stream("hi", GenerateOptions.defaults().runId("r1"))) {
      stream.forEach(chunk -> seen.add(chunk.sequence()));
      assertEquals("good", stream.text());
      assertEquals(6, stream.position());
      assertEquals(FinishReason.STOP, stream.fold().finish().reason());
    }
    assertEquals(List.of(1L, 2L, 3L, 5L, 6L), seen);
    assertEquals(server.requests.get(0), server.requests.get(1));
    assertEquals(2, ((WatchRunRequest) server.requests.get(2)).getAfterSequence());
    assertEquals(4, ((WatchRunRequest) server.requests.get(3)).getAfterSequence());
    assertEquals(4, server.requests.size());
  }

  @Test
  void aStreamThatIsNotWhatTheContractSaysIsAnError() {
    server.then(watched(delta(1, "a"), delta(3, "c")));
    Iterator<Chunk> gap = client.runs().watch("r1", 0).iterator();
    gap.next();
    SequenceGapException missing = assertThrows(SequenceGapException.class, gap::hasNext);
    assertEquals(Map.of("run_id", "r1", "expected", "2", "sequence", "3"), missing.metadata());
    assertEquals(Status.Code.DATA_LOSS, missing.code());

    server.then(watched(unknown(1)));
    assertThrows(
        UnknownChunkException.class, () -> client.runs().watch("r1", 0).iterator().hasNext());

    AtomicReference<Integer> count = new AtomicReference<>(0);
    server.otherwise(StreamObserver::onCompleted);
    List<EntracteException> told = new ArrayList<>();
    Callbacks callbacks =
        Callbacks.none().onStreamError(told::add).onChunk(chunk -> count.set(count.get() + 1));
    RunStream broken = client.runs().watch("r1", 0, WatchOptions.defaults().callbacks(callbacks));
    StreamBrokenException error =
        assertThrows(StreamBrokenException.class, () -> broken.iterator().hasNext());
    assertEquals(List.of(error), told);
    assertEquals(0, count.get());
  }

  @Test
  void aRequestIsRepeatedAsItWas() {
    server
        .thenFail(Status.UNAVAILABLE.asRuntimeException())
        .thenFail(FakeServer.refusal(Status.Code.UNAVAILABLE, "STORE_UNAVAILABLE", Duration.ZERO))
        .then(GenerateResponse.getDefaultInstance());
    client.agent("a").generate("hi", GenerateOptions.defaults().traceparent("00-1-2-01"));
    GenerateRequest request = (GenerateRequest) server.requests.get(0);
    assertEquals(32, request.getRequestId().length());
    assertEquals(32, request.getOptions().getRunId().length());
    assertEquals(List.of(request, request, request), server.requests);
    Metadata headers = server.metadata.get(2);
    assertEquals("Bearer secret", header(headers, "authorization"));
    assertEquals("00-1-2-01", header(headers, "traceparent"));
    assertTrue(header(headers, "user-agent").startsWith("entracte-java/" + EntracteClient.VERSION));

    server.then(GenerateResponse.getDefaultInstance());
    client.agent("a").generate("hi", GenerateOptions.defaults().requestId("mine"));
    GenerateRequest named = (GenerateRequest) server.requests.get(3);
    assertEquals("mine", named.getRequestId());
    assertEquals("", named.getOptions().getRunId());

    server.thenFail(
        FakeServer.refusal(
            Status.Code.RESOURCE_EXHAUSTED, "TOO_MANY_RUNS", Duration.ofMillis(1500)));
    TooManyRunsException refused =
        assertThrows(TooManyRunsException.class, () -> client.agent("a").generate("hi"));
    assertEquals(Duration.ofMillis(1500), refused.retryAfter());
    assertEquals(Map.of("key", "value"), refused.metadata());
    assertTrue(refused.retryable());
    assertEquals("TOO_MANY_RUNS: because", refused.getMessage());
  }

  private static String header(Metadata headers, String name) {
    return headers.get(Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER));
  }

  @Test
  void everyReasonHasItsException() {
    for (ErrorReason value : ErrorReason.values()) {
      if (value == ErrorReason.UNRECOGNIZED || value.getNumber() == 0) {
        continue;
      }
      String reason = value.name().substring("ERROR_REASON_".length());
      EntracteException error = EntracteException.of(details(Status.Code.UNKNOWN, reason));
      assertEquals(
          reason.replace("_", "") + "EXCEPTION",
          error.getClass().getSimpleName().toUpperCase(java.util.Locale.ROOT));
    }
    EntracteException newer =
        EntracteException.of(details(Status.Code.NOT_FOUND, "MOON_NOT_FOUND"));
    assertSame(NotFoundException.class, newer.getClass());
    assertEquals("MOON_NOT_FOUND", newer.reason());
    assertSame(
        EntracteException.class,
        EntracteException.of(details(Status.Code.UNKNOWN, "NEWER")).getClass());
    assertSame(
        NotFoundException.class,
        EntracteException.of(details(Status.Code.NOT_FOUND, "RUN_FINISHED")).getClass());
  }

  private static ErrorDetails details(Status.Code code, String reason) {
    return new ErrorDetails("", code, reason, Map.of(), List.of(), null);
  }

  @Test
  void aValueFromTheFutureIsUnknown() {
    server.then(
        GetRunResponse.newBuilder()
            .setRun(
                dev.entracte.v1.Run.newBuilder()
                    .setRunId("r1")
                    .setStateValue(99)
                    .setFinishReasonValue(99))
            .build());
    Run run = client.runs().get("r1");
    assertEquals(RunState.UNKNOWN, run.state());
    assertEquals(FinishReason.UNKNOWN, run.finishReason());
    assertEquals(null, run.stopCause());
    assertEquals(null, run.result());
  }

  @Test
  void aWaitEndsWithItsTimeoutOrItsClient() throws Exception {
    server.otherwise(observer -> {});
    GenerateOptions hurry = GenerateOptions.defaults().timeout(Duration.ofMillis(50));
    assertThrows(DeadlineExceededException.class, () -> client.agent("a").generate("hi", hurry));
    assertThrows(
        DeadlineExceededException.class,
        () -> client.agent("a").stream("hi", hurry).iterator().hasNext());

    CountDownLatch asked = new CountDownLatch(1);
    server.otherwise(observer -> asked.countDown());
    AtomicReference<Throwable> outcome = new AtomicReference<>();
    RunStream stream = client.runs().watch("r1", 0);
    Thread reader =
        new Thread(
            () -> {
              try {
                stream.iterator().hasNext();
              } catch (RuntimeException error) {
                outcome.set(error);
              }
            });
    reader.start();
    assertTrue(asked.await(20, TimeUnit.SECONDS));
    client.close();
    reader.join(TimeUnit.SECONDS.toMillis(20));
    assertFalse(reader.isAlive());
    assertInstanceOf(CancelledException.class, outcome.get());
    assertThrows(CancelledException.class, () -> client.runs().get("r1"));
  }

  @Test
  void aStreamThatIsClosedByAnotherThreadEnds() throws Exception {
    CountDownLatch asked = new CountDownLatch(1);
    server.then(observer -> asked.countDown());
    RunStream stream = client.runs().watch("r1", 0);
    AtomicReference<Object> outcome = new AtomicReference<>();
    Thread reader = new Thread(() -> outcome.set(stream.iterator().hasNext()));
    reader.start();
    assertTrue(asked.await(20, TimeUnit.SECONDS));
    stream.close();
    reader.join(TimeUnit.SECONDS.toMillis(20));
    assertEquals(false, outcome.get());
  }

  @Test
  void everyOptionOfTheContractCanBeGiven() {
    List<String> methods = new ArrayList<>();
    for (java.lang.reflect.Method method : GenerateOptions.class.getMethods()) {
      methods.add(method.getName());
    }
    for (var field : dev.entracte.v1.GenerateOptions.getDescriptor().getFields()) {
      String name = field.getJsonName();
      assertTrue(
          methods.contains(name) || methods.contains(name.replaceAll("s$", "")),
          "there is no option " + name);
    }
    Message sent =
        GenerateOptions.defaults()
            .maxSteps(3)
            .activeTools()
            .stopWhen(StopWhen.steps(2), StopWhen.toolCalled("x"))
            .requireToolApproval(
                ToolApproval.rules().names("refund").patterns("pay_*").expression("*", "true"))
            .memory(Memory.of("t", "r").onBusyThread(Memory.OnBusy.QUEUE).threadTitle("Title"))
            .structuredOutput(StructuredOutput.of(Json.of(true)).fallbackValue(Json.NULL))
            .toolChoice(ToolChoice.tool("x").everyStep(true))
            .scorer("tone", Scorer.onShare(0.5))
            .version("a", AgentVersion.draft())
            .pendingCallExpiry(
                PendingCallExpiry.answer(Duration.ofMillis(1500), Map.of("ask", Json.NULL)))
            .system("Be kind.")
            .wire();
    String text = sent.toString();
    for (String part :
        List.of(
            "active_tools {",
            "names: \"refund\"",
            "expression: \"true\"",
            "ON_BUSY_THREAD_QUEUE",
            "title: \"Title\"",
            "ERROR_STRATEGY_FALLBACK",
            "MODE_TOOL",
            "SAMPLING_RATIO",
            "published: false",
            "EXPIRY_ACTION_ANSWER",
            "nanos: 500000000",
            "ROLE_SYSTEM")) {
      assertTrue(text.contains(part), part + " is missing in " + text);
    }
    assertEquals(0, GenerateOptions.defaults().wire().getSerializedSize());
  }
}
