package dev.entracte;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import dev.entracte.errors.AgentNotFoundException;
import dev.entracte.errors.ArgsDigestMismatchException;
import dev.entracte.errors.EditedArgsInvalidException;
import dev.entracte.errors.EntracteException;
import dev.entracte.errors.NotFoundException;
import dev.entracte.errors.PendingCallAlreadyDecidedException;
import dev.entracte.errors.RequestIdReusedException;
import dev.entracte.errors.ResumeDataInvalidException;
import dev.entracte.errors.RunNotFinishedException;
import dev.entracte.errors.RunNotFoundException;
import dev.entracte.errors.SequenceAheadException;
import dev.entracte.errors.ThreadParkedException;
import dev.entracte.errors.VerbMismatchException;
import dev.entracte.errors.WorkingMemoryChangedException;
import io.grpc.Status;
import java.math.BigInteger;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The SDK with the server it is made for. */
@Timeout(60)
class RealServerTest {
  private static EntracteClient client;
  private static AgentClient agent;

  @BeforeAll
  static void connect() {
    client = TestServer.shared().connect();
    agent = client.agent("play");
  }

  @AfterAll
  static void close() {
    client.close();
  }

  /** A message that has the agent give these answers, each a list of parts. */
  private static String script(Object... steps) {
    return Json.of(List.of(steps)).text();
  }

  private static List<Map<String, Object>> text(String text) {
    return List.of(Map.of("text", text));
  }

  private static List<Map<String, Object>> call(String tool, Object args) {
    return List.of(Map.of("tool", tool, "args", args));
  }

  private static List<Map<String, Object>> refund(int cents) {
    return call("refund", Map.of("order_id", "7", "cents", cents));
  }

  @Test
  void aConversationWithAllKindsOfStops() {
    String asks =
        script(
            refund(500),
            call("ask", Map.of()),
            refund(1),
            call("locate", Map.of("city", "Kiel")),
            text("All done."));
    ClientTool locate = ClientTool.declared("locate", "Finds a city.", Json.ofText("{}"));
    GenerateResult result =
        agent.generate(asks, GenerateOptions.defaults().clientTools(locate).maxSteps(9));
    assertEquals(FinishReason.SUSPENDED, result.finishReason());
    PendingCall call = result.pendingCalls().get(0);
    assertEquals(PendingCallKind.APPROVAL, call.kind());
    assertEquals(500, call.args().get("cents").asLong());
    assertEquals(call.args(), result.suspendPayload().args());

    EditedArgsInvalidException invalid =
        assertThrows(
            EditedArgsInvalidException.class,
            () -> agent.approveEdited(call, Map.of("order_id", "7", "cents", "many")));
    assertEquals("edited_args/cents", invalid.violations().get(0).field());
    assertThrows(VerbMismatchException.class, () -> agent.resume(call, "yes"));
    assertThrows(ArgsDigestMismatchException.class, () -> agent.approve(otherThan(call)));
    result = agent.approveEdited(call, Map.of("order_id", "7", "cents", 400));
    assertEquals(400, result.toolResults().get(0).result().get("cents").asLong());

    PendingCall question = result.pendingCalls().get(0);
    assertEquals("What is it?", question.suspendPayload().get("question").asString());
    result =
        agent.resume(
            question, null, DecisionOptions.defaults().onBehalfOf("Ada").comment("nothing"));
    assertTrue(result.toolResults().get(1).result().isNull());
    assertThrows(PendingCallAlreadyDecidedException.class, () -> agent.resume(question, false));

    PendingCall second = result.pendingCalls().get(0);
    result = agent.declineWith(WaitingCall.of(result.runId(), second.toolCallId()), "no", 1);
    PendingCall city = result.pendingCalls().get(0);
    assertEquals(PendingCallKind.CLIENT_TOOL, city.kind());
    result = agent.submitToolResult(city, Map.of("at", "54 N"));
    assertEquals("All done.", result.text());
    assertEquals(FinishReason.STOP, result.finishReason());
    assertEquals(StopCause.MODEL_FINISHED, result.stopCause());
    assertEquals(5, result.steps().size());

    List<Decision> decisions =
        client.inbox().decisions(DecisionFilter.all().runId(result.runId())).stream().toList();
    assertEquals(
        List.of(
            DecisionVerb.SUBMIT, DecisionVerb.DECLINE, DecisionVerb.RESUME, DecisionVerb.APPROVE),
        decisions.stream().map(Decision::verb).toList());
    assertEquals("Ada", decisions.get(2).onBehalfOf());
    assertEquals(Json.NULL, decisions.get(2).data());
    assertEquals(Json.of(1), decisions.get(1).reasonJson());
  }

  /** The announcement of a call with other arguments. */
  private static WaitingCall otherThan(PendingCall call) {
    ChunkHeader header =
        new ChunkHeader(call.runId(), 1, null, ChunkSource.AGENT, 1, 1, List.of(), false);
    return new ToolChunk.Approval(
        header,
        call.pendingCallId(),
        call.toolCallId(),
        call.toolName(),
        Json.NULL,
        ByteString.copyFrom(new byte[32]),
        null,
        null);
  }

  @Test
  void everyJsonValueComesBackAsItWas() {
    String huge = "{\"n\":123456789012345678901234567890,\"d\":1.0,\"t\":\"😀\",\"z\":[]}";
    GenerateResult result =
        agent.generate(
            "[[{\"tool\":\"echo\",\"args\":{\"value\":" + huge + "}}],[{\"text\":\"ok\"}]]");
    Json back = result.toolResults().get(0).result();
    assertEquals(new BigInteger("123456789012345678901234567890"), back.get("n").asBigInteger());
    assertEquals(Json.ofText(huge).value(), back.value());

    GenerateResult asked = agent.generate(script(call("ask", Map.of()), text("ok")));
    for (Object answer : new Object[] {false, 0, "", List.of(), Map.of(), BigInteger.TWO.pow(64)}) {
      GenerateResult again = agent.generate(script(call("ask", Map.of()), text("ok")));
      result = agent.resume(again.pendingCalls().get(0), answer);
      assertEquals(Json.of(answer), result.toolResults().get(0).result());
    }
    assertEquals(FinishReason.SUSPENDED, asked.finishReason());
    client.runs().cancelAndWait(asked.runId(), "enough", Duration.ofSeconds(20));
  }

  @Test
  void aStreamFoldsToTheResultAndCanBeFollowedFromItsMiddle() {
    ClientTool locate =
        ClientTool.of(
            "locate",
            "Finds a city.",
            Json.ofText("{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}}}"),
            args -> args.get("city").asString() + " is north");
    ClientTool broken =
        ClientTool.of(
            "broken",
            "Fails.",
            null,
            args -> {
              throw new IllegalStateException("no luck");
            });
    List<Object> seen = Collections.synchronizedList(new ArrayList<>());
    Callbacks callbacks =
        Callbacks.none()
            .onChunk(chunk -> seen.add(chunk.sequence()))
            .onStepFinish(step -> seen.add("step " + step.step()))
            .onFinish(result -> seen.add(result.text()))
            .onRunError(error -> seen.add(error));
    String asks =
        script(
            List.of(
                Map.of("text", "First. "),
                Map.of("tool", "locate", "args", Map.of("city", "Kiel")),
                Map.of("tool", "broken", "args", Map.of())),
            text("Then."));
    List<Chunk> chunks = new ArrayList<>();
    RunFold fold;
    GenerateResult result;
    GenerateOptions options =
        GenerateOptions.defaults().clientTools(locate, broken).callbacks(callbacks);
    try (RunStream stream = agent.stream(asks, options)) {
      assertEquals(0, stream.position());
      for (Chunk chunk : stream) {
        chunks.add(chunk);
        assertEquals(chunk.sequence(), stream.position());
      }
      fold = stream.fold();
      result = stream.result();
      assertEquals(result.runId(), stream.runId());
      assertNull(stream.decision());
      assertThrows(IllegalStateException.class, stream::commit);
    }
    assertEquals("First. Then.", result.text());
    assertEquals(result.text(), fold.text());
    assertEquals(result.usage(), fold.usage());
    assertEquals(result.toolResults().size(), fold.steps().get(0).toolResults().size());
    assertEquals(
        result.toolResults().get(0).result(), fold.steps().get(0).toolResults().get(0).result());
    assertEquals(Json.of("Kiel is north"), result.toolResults().get(0).result());
    assertEquals(
        "no luck",
        chunks.stream()
            .filter(ToolChunk.Failed.class::isInstance)
            .map(chunk -> ((ToolChunk.Failed) chunk).message())
            .findFirst()
            .orElseThrow());
    List<Object> expected = new ArrayList<>();
    for (Chunk chunk : chunks) {
      expected.add(chunk.sequence());
      if (chunk instanceof Chunk.StepFinish end) {
        expected.add("step " + chunk.header().step());
        assertNotNull(end.usage());
      }
    }
    expected.add("First. Then.");
    assertEquals(expected, seen);

    List<Chunk> again = new ArrayList<>();
    try (RunStream rest = client.runs().watch(result.runId(), 4)) {
      rest.forEach(again::add);
    }
    // Chunks of the parking in the middle are passed over by whoever comes later.
    assertEquals(5, again.get(0).sequence());
    assertEquals(chunks.get(chunks.size() - 1), again.get(again.size() - 1));
    assertThrows(
        SequenceAheadException.class,
        () -> client.runs().watch(result.runId(), 9999).iterator().hasNext());
  }

  @Test
  void decisionsCanBeStreamedOrOnlyMade() {
    GenerateResult result = agent.generate(script(refund(1), refund(2), text("Paid.")));
    PendingCall first = result.pendingCalls().get(0);
    DecisionOptions named = DecisionOptions.defaults().requestId(UUID.randomUUID().toString());
    PendingCall second;
    try (RunStream stream = agent.approveStream(first, named)) {
      assertEquals(result.runId(), stream.runId());
      Iterator<Chunk> chunks = stream.iterator();
      assertTrue(chunks.next() instanceof ToolChunk.Resolved);
      assertEquals(DecisionVerb.APPROVE, stream.decision().verb());
      second = stream.result().pendingCalls().get(0);
    }
    try (RunStream replayed = agent.approveStream(first, named)) {
      assertTrue(replayed.iterator().next() instanceof ToolChunk.Resolved);
    }
    assertThrows(
        RequestIdReusedException.class,
        () -> agent.approveEdited(first, Map.of("order_id", "8", "cents", 1), named));
    try (RunStream stream = agent.declineStream(second, "enough", DecisionOptions.defaults())) {
      Decision decision = stream.commit();
      assertEquals(decision, stream.commit());
      assertEquals("enough", decision.reason());
    }
    try (RunStream rest =
        client.runs().watch(result.runId(), 0, WatchOptions.defaults().untilFinished())) {
      assertEquals("Paid.", String.join("", rest.texts()));
    }
  }

  @Test
  void theInboxTellsWhatWaits() {
    String resource = UUID.randomUUID().toString();
    InboxFilter mine = InboxFilter.all().resourceId(resource);
    GenerateOptions options =
        GenerateOptions.defaults().memory(Memory.of(resource + "-t", resource));
    try (InboxWatch watch = client.inbox().watch(mine, Duration.ofSeconds(40))) {
      Iterator<InboxChange> changes = watch.iterator();
      assertTrue(changes.next().snapshotComplete());
      GenerateResult result = agent.generate(script(refund(5), text("ok")), options);
      PendingCall call = changes.next().opened().get(0);
      assertEquals(result.pendingCalls().get(0).pendingCallId(), call.pendingCallId());
      assertThrows(ThreadParkedException.class, () -> agent.generate("hello?", options));
      PendingCall claimed = client.inbox().claim(call, Duration.ofMinutes(2));
      assertNotNull(claimed.claim());
      assertEquals(List.of(claimed), changes.next().opened());
      assertNull(client.inbox().release(call).claim());
      assertEquals(
          List.of(call.pendingCallId()),
          client.inbox().list(mine).stream().map(PendingCall::pendingCallId).toList());
      agent.approve(call);
      InboxChange change = changes.next();
      while (change.closed().isEmpty()) {
        change = changes.next();
      }
      assertEquals(List.of(call.pendingCallId()), change.closed());
      assertEquals(PendingCallState.DECIDED, client.inbox().get(call.pendingCallId()).state());
      watch.close();
      assertFalse(changes.hasNext());
    }
  }

  @Test
  void runsAreListedCancelledAndDeleted() {
    String id = "java-" + UUID.randomUUID();
    String thread = id + "-thread";
    GenerateOptions options =
        GenerateOptions.defaults().runId(id).memory(Memory.of(thread, "someone"));
    agent.generate(script(refund(5), text("ok")), options);
    RunFilter parked =
        RunFilter.all().states(RunState.SUSPENDED).threadId(thread).agentId("play").pageSize(1);
    assertEquals(id, client.runs().list(parked).stream().findFirst().orElseThrow().runId());
    assertThrows(RunNotFinishedException.class, () -> client.runs().delete(id));
    Run run = client.runs().cancelAndWait(id, "not needed", Duration.ofSeconds(20));
    assertEquals(RunState.CANCELLED, run.state());
    run = client.runs().get(id);
    assertEquals(FinishReason.ABORTED, run.result().finishReason());
    assertEquals(List.of(), client.runs().awaitFollowUps(id, Duration.ofSeconds(20)));
    client.runs().delete(id);
    RunNotFoundException gone =
        assertThrows(RunNotFoundException.class, () -> client.runs().get(id));
    assertEquals(Map.of("run_id", id), gone.metadata());
    assertEquals(Status.Code.NOT_FOUND, gone.code());
    assertTrue(gone instanceof NotFoundException && !gone.retryable());
    assertThrows(AgentNotFoundException.class, () -> client.agent("nobody").generate("hi"));
  }

  @Test
  void threadsKeepWhatWasSaid() {
    String resource = UUID.randomUUID().toString();
    ThreadsClient threads = client.threads();
    ThreadInfo made = threads.create("", resource, "First", Json.of(Map.of("n", 1)));
    agent.generate(
        script(call("echo", Map.of("value", 7)), text("Said.")),
        GenerateOptions.defaults().memory(Memory.of(made.threadId(), resource).lastMessages(3)));
    ThreadInfo read = threads.get(made.threadId());
    assertEquals("First", read.title());
    assertEquals(1, read.metadata().get("n").asLong());
    List<ThreadMessage> said =
        threads
            .messages(made.threadId(), MessageFilter.all().newestFirst(true).pageSize(1))
            .stream()
            .toList();
    assertEquals(read.messageCount(), said.size());
    assertEquals("Said.", said.get(0).text());
    assertTrue(
        said.stream()
            .flatMap(message -> message.parts().stream())
            .anyMatch(
                part ->
                    part instanceof ThreadPart.ToolInvocation done
                        && done.state() == ToolInvocationState.RESULT
                        && done.result().asLong() == 7));
    assertEquals("Second", threads.update(made.threadId(), "Second", null).title());
    WorkingMemory notes = threads.updateWorkingMemory(made.threadId(), "# Notes", 0L);
    assertEquals(notes, threads.workingMemory(made.threadId()));
    assertThrows(
        WorkingMemoryChangedException.class,
        () -> threads.updateWorkingMemory(made.threadId(), "", 0L));
    assertEquals(
        List.of(made.threadId()),
        threads.list(ThreadFilter.all().resourceId(resource)).stream()
            .map(ThreadInfo::threadId)
            .toList());
    assertEquals(List.of(), threads.delete(made.threadId(), true));
    assertThrows(EntracteException.class, () -> threads.get(made.threadId()));
  }

  @Test
  void anAnswerThatDoesNotFitIsRefusedAndTheCallStillWaits() {
    GenerateResult result =
        agent.generate(
            script(
                call(
                    "ask_user",
                    Map.of(
                        "question",
                        "Which?",
                        "options",
                        List.of(Map.of("label", "7"), Map.of("label", "8")))),
                text("ok")));
    PendingCall question = result.pendingCalls().get(0);
    assertThrows(ResumeDataInvalidException.class, () -> agent.resume(question, 7));
    assertEquals("ok", agent.resume(question, "7").text());
  }

  @Test
  void theServerKeepsRunningWhenTheReaderGoes() throws Exception {
    String slow =
        script(List.of(Map.of("text", "one "), Map.of("delay", 300), Map.of("text", "two")));
    RunStream stream = agent.stream(slow);
    for (Chunk chunk : stream) {
      if (chunk instanceof Chunk.TextDelta) {
        break;
      }
    }
    long left = stream.position();
    stream.close();
    assertFalse(stream.iterator().hasNext());
    try (RunStream rest = client.runs().watch(stream.runId(), left)) {
      assertEquals("two", String.join("", rest.texts()));
    }

    RunStream interrupted = agent.stream(script(List.of(Map.of("delay", 20_000))));
    Iterator<Chunk> chunks = interrupted.iterator();
    chunks.next();
    Thread reader = Thread.currentThread();
    Thread other = new Thread(reader::interrupt);
    other.start();
    EntracteException error =
        assertThrows(
            EntracteException.class,
            () -> {
              while (chunks.hasNext()) {
                chunks.next();
              }
            });
    other.join();
    assertTrue(Thread.interrupted());
    assertEquals(Status.Code.CANCELLED, error.code());
    assertEquals(RunState.RUNNING, client.runs().getWithoutResult(interrupted.runId()).state());
    client.runs().cancel(interrupted.runId(), "enough");
  }
}
