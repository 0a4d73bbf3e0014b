package dev.entracte;

import com.google.protobuf.Message;
import dev.entracte.errors.EntracteException;
import dev.entracte.errors.SequenceGapException;
import dev.entracte.errors.StreamBrokenException;
import dev.entracte.errors.UnknownChunkException;
import dev.entracte.v1.RunServiceGrpc;
import dev.entracte.v1.StreamResponse;
import dev.entracte.v1.WatchRunRequest;
import dev.entracte.v1.WatchRunResponse;
import java.util.ArrayDeque;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.function.Function;
import java.util.function.Predicate;

/**
 * Reads a run's chunks in order, each once, over any number of broken streams. One thread reads;
 * any may stop it.
 */
final class Follower {
  private final Connection connection;
  private final Deadline deadline;
  private final boolean untilFinished;
  private final Backoff backoff;
  private final Queue<dev.entracte.v1.Chunk> arrived = new ArrayDeque<>();
  private Function<Long, Responses<StreamResponse>> start;
  private Predicate<Chunk> skip;
  private String runId;
  private String autoResumeError = "";
  private boolean atRest;
  private boolean over;
  private volatile Responses<? extends Message> call;
  private volatile boolean stopped;
  private volatile long position;

  /** Follows a run after the chunk at {@code position}. */
  Follower(
      Connection connection,
      Deadline deadline,
      String runId,
      long position,
      boolean untilFinished) {
    this.connection = connection;
    this.deadline = deadline;
    this.runId = runId;
    this.position = position;
    this.untilFinished = untilFinished;
    this.backoff = connection.backoff(deadline);
  }

  /**
   * The first stream is opened by {@code start}, with a time in nanoseconds, until a chunk has
   * arrived; it must be safe to repeat.
   */
  Follower startWith(Function<Long, Responses<StreamResponse>> start) {
    this.start = start;
    return this;
  }

  /** Nothing need come after the position. */
  Follower mayBeAtRest() {
    atRest = true;
    return this;
  }

  /** Chunks are left out as long as {@code skip} holds. */
  Follower skipWhile(Predicate<Chunk> skip) {
    this.skip = skip;
    return this;
  }

  /** The run; empty while only the server knows it. */
  String runId() {
    return runId;
  }

  /** The sequence of the last chunk handed out. */
  long position() {
    return position;
  }

  /** Why the message that began the stream did not answer the parked run that is followed now. */
  String autoResumeError() {
    return autoResumeError;
  }

  /** Whether the run has ended and its last chunk was handed out. */
  boolean over() {
    return over;
  }

  boolean stopped() {
    return stopped;
  }

  /** More must come: a waiting call was decided. */
  void expectMore() {
    atRest = false;
  }

  /** Makes the reading end. */
  void stop() {
    stopped = true;
    Responses<? extends Message> current = call;
    if (current != null) {
      current.cancel();
    }
    connection.wake();
  }

  /** The next chunk; null where the run parks or has ended, or the reading was stopped. */
  Chunk next() {
    while (!stopped) {
      Chunk chunk = nextArrived();
      if (chunk != null) {
        return chunk;
      }
      if (over) {
        leave();
        return null;
      }
      EntracteException error;
      try {
        if (call == null) {
          backoff.begin();
          call = open();
          if (stopped) {
            continue; // by a thread that could not see the call yet
          }
        }
        Message response = call.next();
        if (response != null) {
          take(response);
          continue;
        }
        call = null;
        if (atRest) {
          return null;
        }
        error =
            new StreamBrokenException(
                "the stream ended before its finish chunk",
                Map.of("run_id", runId, "sequence", Long.toString(position)));
      } catch (EntracteException failure) {
        leave();
        if (stopped) {
          return null;
        }
        connection.checkOpen();
        if (!backoff.mayTryAgain(failure)) {
          throw failure;
        }
        error = failure;
      }
      connection.pause(backoff, error, this::stopped);
    }
    leave();
    return null;
  }

  private void leave() {
    Responses<? extends Message> current = call;
    if (current != null) {
      current.cancel();
      call = null;
    }
  }

  private Responses<? extends Message> open() {
    Long remaining = deadline.remaining();
    if (start != null && position == 0) {
      return start.apply(remaining);
    }
    WatchRunRequest request =
        WatchRunRequest.newBuilder()
            .setRunId(runId)
            .setAfterSequence(position)
            .setUntilFinished(untilFinished)
            .build();
    return connection.open(RunServiceGrpc.getWatchRunMethod(), request, remaining, null);
  }

  private void take(Message response) {
    connection.answered();
    backoff.answered();
    List<dev.entracte.v1.Chunk> chunks;
    if (response instanceof StreamResponse first) {
      if (first.hasAnswered() && position == 0) {
        // The message was taken as an answer to a parked run, which is followed from here on.
        runId = first.getAnswered().getRunId();
        position = first.getAnswered().getAfterSequence();
        autoResumeError = first.getAnswered().getAutoResumeError();
      }
      chunks = first.getChunksList();
    } else {
      chunks = ((WatchRunResponse) response).getChunksList();
    }
    if (!chunks.isEmpty() && chunks.get(chunks.size() - 1).getSequence() > position) {
      backoff.progress();
    }
    arrived.addAll(chunks);
  }

  private Chunk nextArrived() {
    while (!arrived.isEmpty()) {
      dev.entracte.v1.Chunk message = arrived.remove();
      if (message.getSequence() > position) {
        Chunk chunk = accept(message);
        if (chunk != null) {
          return chunk;
        }
      }
    }
    return null;
  }

  /** The chunk to hand out; null for one that is to be left out. */
  private Chunk accept(dev.entracte.v1.Chunk message) {
    long sequence = message.getSequence();
    if (runId.isEmpty()) {
      runId = message.getRunId(); // the server chose it
    }
    // A sub-agent's run is a part of its root's log: its numbers have gaps, and its paths are long.
    boolean isPart = !message.getRunId().equals(runId);
    if (sequence != position + 1 && !isPart) {
      leave();
      throw new SequenceGapException(
          "chunk " + (position + 1) + " of run " + runId + " is missing: " + sequence + " came",
          Map.of(
              "run_id", runId,
              "expected", Long.toString(position + 1),
              "sequence", Long.toString(sequence)));
    }
    Chunk chunk = ChunkReader.read(message);
    if (chunk == null && !message.getIgnorable()) {
      leave();
      throw new UnknownChunkException(
          "chunk " + sequence + " of run " + runId + " is of a type this version does not know",
          Map.of("run_id", runId, "sequence", Long.toString(sequence)));
    }
    position = sequence;
    if (isPart) {
      atRest = true;
    } else if (message.getAgentPathCount() == 0) {
      boolean parked =
          chunk instanceof Chunk.Finish finish && finish.reason() == FinishReason.SUSPENDED;
      atRest = chunk instanceof Chunk.Finish && !(parked && untilFinished);
      over = chunk instanceof Chunk.Finish && !parked;
    }
    if (skip != null && chunk != null) {
      if (skip.test(chunk)) {
        return null;
      }
      skip = null;
    }
    return chunk;
  }
}
