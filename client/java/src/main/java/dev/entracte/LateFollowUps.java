package dev.entracte;

import dev.entracte.errors.EntracteException;
import dev.entracte.v1.RunServiceGrpc;
import dev.entracte.v1.WatchRunRequest;
import dev.entracte.v1.WatchRunResponse;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Predicate;

/** What is done about a run after its end, as it is settled. */
final class LateFollowUps {
  private LateFollowUps() {}

  /**
   * Shows each follow-up of a run that has {@code after} chunks once it is settled, until all are
   * or {@code enough} says so. Waits until the run has ended.
   */
  static void await(
      Connection connection,
      String runId,
      long after,
      Deadline deadline,
      Predicate<FollowUp> enough) {
    Backoff backoff = connection.backoff(deadline);
    Set<List<Object>> told = new HashSet<>();
    long position = after;
    while (true) {
      EntracteException error;
      backoff.begin();
      WatchRunRequest request =
          WatchRunRequest.newBuilder()
              .setRunId(runId)
              .setAfterSequence(position)
              .setUntilFinished(true)
              .setIncludeLate(true)
              .build();
      Responses<WatchRunResponse> responses =
          connection.open(RunServiceGrpc.getWatchRunMethod(), request, deadline.remaining(), null);
      try {
        for (WatchRunResponse next = responses.next(); next != null; next = responses.next()) {
          connection.answered();
          backoff.answered();
          if (next.getChunksCount() > 0) {
            position = next.getChunks(next.getChunksCount() - 1).getSequence();
            backoff.progress();
          }
          for (dev.entracte.v1.FollowUp message : next.getFollowUpsList()) {
            FollowUp job = FollowUp.of(message);
            if (told.add(List.of(message.getKind(), job.name())) && enough.test(job)) {
              return;
            }
          }
        }
        return;
      } catch (EntracteException failure) {
        connection.checkOpen();
        if (!backoff.mayTryAgain(failure)) {
          throw failure;
        }
        error = failure;
      } finally {
        responses.cancel();
      }
      connection.pause(backoff, error, () -> false);
    }
  }
}
