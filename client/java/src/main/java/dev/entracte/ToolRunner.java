package dev.entracte;

import dev.entracte.errors.CancelledException;
import dev.entracte.errors.EntracteException;
import dev.entracte.errors.PendingCallAlreadyDecidedException;
import dev.entracte.errors.PendingCallExpiredException;
import dev.entracte.errors.RunFinishedException;
import dev.entracte.v1.AgentServiceGrpc;
import dev.entracte.v1.CallRef;
import dev.entracte.v1.GetPendingCallRequest;
import dev.entracte.v1.InboxServiceGrpc;
import dev.entracte.v1.SubmitToolResultRequest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.logging.Level;
import java.util.logging.Logger;

/** Executes the client tools of one stream and hands in what they come to. */
final class ToolRunner {
  private static final Logger LOG = Logger.getLogger("dev.entracte");

  private final Connection connection;
  private final Map<String, ClientTool> tools = new HashMap<>();
  private final Map<String, Json> announced = new HashMap<>();
  // Kept, so that a function runs once even if handing in what it returned fails at first.
  private final Map<String, SubmitToolResultRequest> submissions = new ConcurrentHashMap<>();
  private final Set<String> answered = ConcurrentHashMap.newKeySet();

  ToolRunner(Connection connection, List<ClientTool> tools) {
    this.connection = connection;
    for (ClientTool tool : tools) {
      if (tool.function() != null) {
        this.tools.put(tool.name(), tool);
      }
    }
  }

  /** Whether there is anything to execute. */
  static boolean isNeeded(List<ClientTool> tools) {
    return tools.stream().anyMatch(tool -> tool.function() != null);
  }

  /** Takes note of the arguments of a call. */
  void look(Chunk chunk) {
    if (chunk instanceof ToolChunk.Suspended call && call.kind() == PendingCallKind.CLIENT_TOOL) {
      announced.put(call.pendingCallId(), call.args());
    }
  }

  /**
   * Executes those calls of a parked run that are its tools', all at a time. False when there is
   * nothing to follow: no such calls, or all of them had been settled otherwise.
   */
  boolean answer(Chunk.Finish finish) {
    List<Callable<Boolean>> work = new ArrayList<>();
    for (OpenCall call : finish.openCalls()) {
      if (call.kind() == PendingCallKind.CLIENT_TOOL
          && tools.containsKey(call.toolName())
          && !answered.contains(call.pendingCallId())) {
        work.add(() -> answer(call));
      }
    }
    boolean fresh = false;
    try {
      for (Future<Boolean> outcome : connection.threads().invokeAll(work)) {
        fresh |= outcome.get();
      }
    } catch (InterruptedException interruption) {
      Thread.currentThread().interrupt();
      throw new CancelledException("the thread was interrupted; the run waits for its tools");
    } catch (ExecutionException error) {
      if (error.getCause() instanceof EntracteException refused) {
        throw refused;
      }
      throw new IllegalStateException("a client tool could not be executed", error.getCause());
    }
    return fresh;
  }

  private boolean answer(OpenCall call) {
    SubmitToolResultRequest request = submissions.get(call.pendingCallId());
    if (request == null) {
      request = execute(tools.get(call.toolName()), call);
      submissions.put(call.pendingCallId(), request);
    }
    boolean fresh = true;
    try {
      connection.call(AgentServiceGrpc.getSubmitToolResultMethod(), request, connection.timeout());
    } catch (PendingCallAlreadyDecidedException
        | PendingCallExpiredException
        | RunFinishedException settled) {
      fresh = false;
    }
    answered.add(call.pendingCallId());
    return fresh;
  }

  private SubmitToolResultRequest execute(ClientTool tool, OpenCall call) {
    Json args = argsOf(call);
    SubmitToolResultRequest.Builder request =
        SubmitToolResultRequest.newBuilder()
            .setRequestId(Connection.newId())
            .setCall(CallRef.newBuilder().setPendingCallId(call.pendingCallId()));
    try {
      return request.setResult(Json.of(tool.function().call(args)).wire()).build();
    } catch (Exception error) { // whatever a tool throws is an outcome
      if (error instanceof InterruptedException) {
        Thread.currentThread().interrupt();
        throw new CancelledException("the tool " + tool.name() + " was interrupted");
      }
      LOG.log(Level.INFO, "the client tool " + tool.name() + " threw", error);
      String message = error.getMessage();
      return request.setError(message == null ? error.getClass().getSimpleName() : message).build();
    }
  }

  private Json argsOf(OpenCall call) {
    Json args = announced.get(call.pendingCallId());
    if (args == null) {
      GetPendingCallRequest request =
          GetPendingCallRequest.newBuilder().setPendingCallId(call.pendingCallId()).build();
      args =
          PendingCall.of(
                  connection
                      .call(
                          InboxServiceGrpc.getGetPendingCallMethod(), request, connection.timeout())
                      .getPendingCall())
              .args();
    }
    return args == null ? Json.ofText("{}") : args;
  }
}
