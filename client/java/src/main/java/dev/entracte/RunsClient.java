package dev.entracte;

import dev.entracte.errors.EntracteException;
import dev.entracte.v1.CancelRunRequest;
import dev.entracte.v1.DeleteRunRequest;
import dev.entracte.v1.GetRunRequest;
import dev.entracte.v1.GetRunResponse;
import dev.entracte.v1.ListRunsResponse;
import dev.entracte.v1.RunServiceGrpc;
import java.time.Duration;
import java.util.List;

/**
 * The runs of a server: looking at them, following them, ending them. Methods throw {@link
 * EntracteException}, {@code RunNotFoundException} for one. Safe for use by several threads.
 */
public final class RunsClient {
  private final Connection connection;
  private final RequestOptions options;

  RunsClient(Connection connection, RequestOptions options) {
    this.connection = connection;
    this.options = options;
  }

  /**
   * The same with other options of its requests.
   *
   * @param options time limit and request id
   * @return another client on the same connection
   */
  public RunsClient with(RequestOptions options) {
    return new RunsClient(connection, options);
  }

  /**
   * The options of its requests.
   *
   * @return time limit and request id
   */
  public RequestOptions options() {
    return options;
  }

  /**
   * Reads a run with its result: final for one that has ended, else what there is so far. Refused
   * with {@code ResultTooLargeException} for a result beyond 16 MiB: read the run without it.
   *
   * @param runId the run
   * @return the run
   */
  public Run get(String runId) {
    GetRunResponse response = read(runId, false, options.timeout());
    Run run = Run.of(response.getRun());
    return response.hasResult() ? run.with(GenerateResult.of(response.getResult())) : run;
  }

  /**
   * Reads a run without its result, which may be large.
   *
   * @param runId the run
   * @return the run
   */
  public Run getWithoutResult(String runId) {
    return Run.of(read(runId, true, options.timeout()).getRun());
  }

  /**
   * All runs that fit, newest first, without their results.
   *
   * @param filter which
   * @return the runs, page after page
   */
  public Paged<Run> list(RunFilter filter) {
    return new Paged<>(
        token -> {
          ListRunsResponse response =
              connection.call(
                  RunServiceGrpc.getListRunsMethod(),
                  filter.wire().toBuilder().setPageToken(token).build(),
                  options.timeout());
          return new Page<>(
              response.getRunsList().stream().map(Run::of).toList(), response.getNextPageToken());
        });
  }

  /**
   * Follows a run from any position, until it is parked or has ended.
   *
   * @param runId the run
   * @param after the sequence of the last chunk that is known; 0 starts with the first
   * @return the stream of its chunks
   */
  public RunStream watch(String runId, long after) {
    return watch(runId, after, WatchOptions.defaults());
  }

  /**
   * Follows a run from any position: what is stored, then what happens. Reading is refused with
   * {@code SequenceTrimmedException} where those chunks are no longer stored, and with {@code
   * SequenceAheadException}.
   *
   * @param runId the run
   * @param after the sequence of the last chunk that is known; 0 starts with the first
   * @param watching how it is watched
   * @return the stream of its chunks
   */
  public RunStream watch(String runId, long after, WatchOptions watching) {
    CallSettings settings = watching.settings();
    return new RunStream(
        connection,
        () -> {
          Deadline deadline = new Deadline(settings.timeout());
          Follower follower =
              new Follower(connection, deadline, runId, after, watching.isUntilFinished());
          return new Beginning(after > 0 ? follower.mayBeAtRest() : follower, null);
        },
        runId,
        settings.callbacks(),
        settings.clientTools());
  }

  /**
   * What is done about a run after its end, as it stands now.
   *
   * @param runId the run
   * @return the follow-ups
   */
  public List<FollowUp> followUps(String runId) {
    return getWithoutResult(runId).followUps();
  }

  /**
   * What is done about a run after its end, once all of it is settled. Waits until the run has
   * ended, which may take as long as people take.
   *
   * @param runId the run
   * @param timeout the longest to wait; null for ever
   * @return the follow-ups
   */
  public List<FollowUp> awaitFollowUps(String runId, Duration timeout) {
    Deadline deadline = new Deadline(timeout);
    long after = getWithoutResult(runId).lastSequence();
    LateFollowUps.await(connection, runId, after, deadline, job -> false);
    return followUps(runId);
  }

  /**
   * Cancels a run, whatever it is doing: model calls and tools are cut off, waiting calls are
   * settled as cancelled. One that had ended before stays as it is.
   *
   * @param runId the run
   * @param reason why, shown in the {@code abort} chunk; empty for no reason
   * @return the run, which may take a moment to end
   */
  public Run cancel(String runId, String reason) {
    return cancel(runId, reason, false, options.timeout());
  }

  /**
   * Cancels a run and waits until it has ended.
   *
   * @param runId the run
   * @param reason why, shown in the {@code abort} chunk; empty for no reason
   * @param timeout the longest to wait; null for ever
   * @return the run
   */
  public Run cancelAndWait(String runId, String reason, Duration timeout) {
    return cancel(runId, reason, true, timeout);
  }

  /**
   * Deletes all that is stored of a run that has ended. Refused with {@code
   * RunNotFinishedException} for another.
   *
   * @param runId the run
   */
  public void delete(String runId) {
    delete(runId, false);
  }

  /**
   * Deletes all that is stored of a run.
   *
   * @param runId the run
   * @param force whether a parked run is deleted too
   */
  public void delete(String runId, boolean force) {
    DeleteRunRequest request =
        DeleteRunRequest.newBuilder()
            .setRunId(runId)
            .setForce(force)
            .setRequestId(options.anyRequestId())
            .build();
    connection.call(RunServiceGrpc.getDeleteRunMethod(), request, options.timeout());
  }

  private GetRunResponse read(String runId, boolean omitResult, Duration timeout) {
    GetRunRequest request =
        GetRunRequest.newBuilder().setRunId(runId).setOmitResult(omitResult).build();
    return connection.call(RunServiceGrpc.getGetRunMethod(), request, timeout);
  }

  private Run cancel(String runId, String reason, boolean wait, Duration timeout) {
    CancelRunRequest request =
        CancelRunRequest.newBuilder()
            .setRunId(runId)
            .setReason(reason)
            .setWait(wait)
            .setRequestId(options.anyRequestId())
            .build();
    return Run.of(connection.call(RunServiceGrpc.getCancelRunMethod(), request, timeout).getRun());
  }
}
