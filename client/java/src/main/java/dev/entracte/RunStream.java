package dev.entracte;

import dev.entracte.errors.EntracteException;
import dev.entracte.v1.GenerateResult.Builder;
import dev.entracte.v1.GetRunRequest;
import dev.entracte.v1.RunServiceGrpc;
import java.time.Duration;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.function.Supplier;

/**
 * The chunks of a run, from where it starts or goes on to where it parks or ends.
 *
 * <pre>{@code
 * try (RunStream stream = agent.stream("Hello")) {
 *   for (Chunk chunk : stream) {
 *     ...
 *   }
 * }
 * }</pre>
 *
 * <p>Nothing is sent before the first chunk is asked for. A broken connection, a stopping server or
 * a reader that was too slow are no end: the stream attaches again after the last chunk, so that
 * each chunk comes once and none is left out. After a broken attempt of a step the model's answer
 * starts over, with a {@link Chunk.StepStart} of a higher attempt; {@link #text()} and {@link
 * #fold()} drop what it made void.
 *
 * <p>Another loop, or {@link #result()}, goes on after the last chunk that was handed out. One
 * thread reads a stream; any thread may {@link #close()} it, which ends the reading. A stream that
 * was neither closed nor read to its end holds its call until the client is closed. Closing it, or
 * interrupting the reader, leaves the run alone, unless it has {@code cancelOnDisconnect}.
 *
 * <p>Reading throws {@link EntracteException}: what the server refused; {@code
 * DeadlineExceededException} when the timeout passed; {@code UnavailableException} when no server
 * was reached for too long; {@code StreamException} for a stream that is not what the contract
 * says; {@code CancelledException} when the thread was interrupted.
 */
public final class RunStream implements Iterable<Chunk>, AutoCloseable {
  private static final Duration TITLE_TIMEOUT = Duration.ofSeconds(30);

  private final Connection connection;
  private final Supplier<Beginning> begin;
  private final String knownRunId;
  private final Observer observer;
  private final ToolRunner tools;
  private final RunFold fold = new RunFold();
  private volatile Beginning beginning;
  private volatile boolean closed;
  private Chunk peeked;
  private Chunk.Finish finish;
  private boolean ended;
  private boolean failed;
  private GenerateResult result;

  RunStream(
      Connection connection,
      Supplier<Beginning> begin,
      String runId,
      Callbacks callbacks,
      List<ClientTool> tools) {
    this.connection = connection;
    this.begin = begin;
    this.knownRunId = runId;
    this.observer = new Observer(callbacks, connection.threads());
    this.tools = new ToolRunner(connection, tools);
  }

  /**
   * The run's id. Known from the start, except where only the server knows it: then it is empty
   * until a decision by a bare pending call id was made, or until the first chunk of a run that was
   * started with a request id and without a run id.
   *
   * @return the id
   */
  public String runId() {
    Beginning begun = beginning;
    return begun == null ? knownRunId : begun.follower().runId();
  }

  /**
   * The text so far, void attempts and drafts left out.
   *
   * @return the text
   */
  public String text() {
    return fold.text();
  }

  /**
   * What the chunks so far add up to.
   *
   * @return the fold, which grows with the stream
   */
  public RunFold fold() {
    return fold;
  }

  /**
   * The decision this stream began with.
   *
   * @return the decision, once it was made; null for other streams
   */
  public Decision decision() {
    Beginning begun = beginning;
    return begun == null ? null : begun.decision();
  }

  /**
   * The sequence of the last chunk that was handed out, to follow the run from elsewhere.
   *
   * @return the sequence; 0 before the first chunk
   */
  public long position() {
    Beginning begun = beginning;
    if (begun == null) {
      return 0;
    }
    return peeked == null ? begun.follower().position() : peeked.sequence() - 1;
  }

  /**
   * Makes the decision this stream begins with and returns at once, without following the run; a
   * decision that was made is returned as it is.
   *
   * @return the decision
   * @throws IllegalStateException for other streams
   */
  public Decision commit() {
    Decision decision = begun().decision();
    if (decision == null) {
      throw new IllegalStateException("this stream does not begin with a decision");
    }
    return decision;
  }

  /**
   * What the run has come to, after reading the stream to its end.
   *
   * @return the result
   */
  public GenerateResult result() {
    Iterator<Chunk> chunks = iterator();
    while (chunks.hasNext()) {
      chunks.next();
    }
    if (result == null) {
      result = readResult();
    }
    return result;
  }

  /**
   * The chunks that were not handed out yet.
   *
   * @return an iterator, whose methods wait for the next chunk
   */
  @Override
  public Iterator<Chunk> iterator() {
    return new Iterator<>() {
      @Override
      public boolean hasNext() {
        if (peeked == null) {
          peeked = advance();
        }
        return peeked != null;
      }

      @Override
      public Chunk next() {
        if (!hasNext()) {
          throw new NoSuchElementException("the stream has ended");
        }
        Chunk chunk = peeked;
        peeked = null;
        takeIn(chunk);
        return chunk;
      }
    };
  }

  /**
   * The pieces of the answer's text as they come, in place of the chunks.
   *
   * @return an iterable that can be read once
   */
  public Iterable<String> texts() {
    return () -> new TextIterator(iterator());
  }

  /** Stops following. The run goes on, unless it has {@code cancelOnDisconnect}. */
  @Override
  public void close() {
    closed = true;
    Beginning begun = beginning;
    if (begun != null) {
      begun.follower().stop();
    }
  }

  private Beginning begun() {
    if (beginning == null) {
      beginning = begin.get();
      if (closed) {
        beginning.follower().stop();
      }
    }
    return beginning;
  }

  /** The next chunk; null at the end. */
  private Chunk advance() {
    if (closed || ended) {
      return null;
    }
    boolean goesOn = false;
    try {
      Follower follower = begun().follower();
      Chunk chunk = follower.next();
      while (chunk == null && !follower.stopped() && finish != null && tools.answer(finish)) {
        follower.expectMore();
        chunk = follower.next();
      }
      goesOn = chunk != null;
      if (!goesOn && !follower.stopped()) {
        end(follower);
      }
      return chunk;
    } catch (EntracteException error) {
      observer.emit(Callbacks.Event.STREAM_ERROR, error);
      throw error;
    } finally {
      if (!goesOn) {
        observer.drain();
      }
    }
  }

  private void end(Follower follower) {
    ended = true;
    if (!follower.over() || failed) {
      return;
    }
    if (observer.wants(Callbacks.Event.FINISH)) {
      result = readResult();
      observer.emit(Callbacks.Event.FINISH, result);
    }
    if (observer.wants(Callbacks.Event.TITLE_GENERATED)) {
      awaitTitle();
    }
  }

  /**
   * Tells of the title that the run's thread is given. When it cannot be heard of in time, it is
   * not told: the run itself has been read to its end.
   */
  private void awaitTitle() {
    try {
      LateFollowUps.await(
          connection, runId(), position(), new Deadline(TITLE_TIMEOUT), this::isTitle);
    } catch (EntracteException late) {
      return;
    }
  }

  private boolean isTitle(FollowUp job) {
    if (job.title() != null) {
      observer.emit(Callbacks.Event.TITLE_GENERATED, job.title());
    }
    return job.title() != null;
  }

  private void takeIn(Chunk chunk) {
    observer.emit(Callbacks.Event.CHUNK, chunk);
    StepResult step = fold.add(chunk);
    if (step != null) {
      observer.emit(Callbacks.Event.STEP_FINISH, step);
    }
    tools.look(chunk);
    if (!chunk.isRoot()) {
      return;
    }
    finish = chunk instanceof Chunk.Finish last ? last : null;
    if (chunk instanceof Chunk.Failure failure) {
      failed = true;
      observer.emit(Callbacks.Event.RUN_ERROR, failure.error());
    } else if (chunk instanceof Chunk.Abort abort) {
      failed = true;
      observer.emit(Callbacks.Event.ABORT, abort);
    }
  }

  private GenerateResult readResult() {
    GetRunRequest request = GetRunRequest.newBuilder().setRunId(runId()).build();
    Builder message =
        connection
            .call(RunServiceGrpc.getGetRunMethod(), request, connection.timeout())
            .getResult()
            .toBuilder();
    return GenerateResult.of(
        message.setAutoResumeError(begun().follower().autoResumeError()).build());
  }

  private static final class TextIterator implements Iterator<String> {
    private final Iterator<Chunk> chunks;
    private String next;

    TextIterator(Iterator<Chunk> chunks) {
      this.chunks = chunks;
    }

    @Override
    public boolean hasNext() {
      while (next == null && chunks.hasNext()) {
        Chunk chunk = chunks.next();
        if (chunk instanceof Chunk.TextDelta delta && chunk.isRoot()) {
          next = delta.text();
        }
      }
      return next != null;
    }

    @Override
    public String next() {
      if (!hasNext()) {
        throw new NoSuchElementException("the stream has ended");
      }
      String text = next;
      next = null;
      return text;
    }
  }
}
