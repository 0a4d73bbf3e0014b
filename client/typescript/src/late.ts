/** What is done about a run after its end, as it is settled. */

import { type Connection, callOptions } from "./connection.js";
import type { EntracteError } from "./errors.js";
import { countOf } from "./outcomes.js";
import { followUpOf } from "./result-codec.js";
import type { FollowUp } from "./results.js";
import type { Deadline } from "./retry.js";
import { link } from "./signals.js";
import { errorOf } from "./status.js";

/**
 * The follow-ups of a run that has `after` chunks, each once it is settled, until all of them are. Waits until the run
 * has ended. Throws EntracteError, or the signal's reason.
 */
export async function* late(
  connection: Connection,
  runId: string,
  after: number,
  deadline: Deadline,
  signal: AbortSignal | undefined,
): AsyncGenerator<FollowUp, void, undefined> {
  const backoff = connection.backoff(deadline);
  const told = new Set<string>();
  const controller = new AbortController();
  const unlink = link(signal, controller);
  let position = after;
  try {
    for (;;) {
      connection.checkOpen();
      signal?.throwIfAborted();
      backoff.begin();
      let error: EntracteError;
      try {
        const request = { runId, afterSequence: BigInt(position), untilFinished: true, includeLate: true };
        for await (const response of connection.runs.watchRun(
          request,
          callOptions(deadline, controller.signal),
        )) {
          connection.answered();
          backoff.answered();
          const last = response.chunks.at(-1);
          if (last !== undefined) {
            position = countOf(last.sequence);
            backoff.progress();
          }
          for (const job of response.followUps.map(followUpOf)) {
            const key = `${job.kind}/${job.name}`;
            if (told.has(key)) continue;
            told.add(key);
            yield job;
          }
        }
        return;
      } catch (failure) {
        signal?.throwIfAborted();
        error = errorOf(failure);
        if (connection.closed || !backoff.mayTryAgain(error)) throw error;
      }
      await backoff.pause(error, signal);
    }
  } finally {
    unlink();
    controller.abort();
  }
}
