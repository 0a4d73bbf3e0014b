package dev.entracte;

import java.time.Duration;
import java.time.Instant;

/**
 * Something that is done about a run after its end: a scorer judges it, its thread is given a
 * title.
 *
 * @param kind what is done
 * @param name what it is called in the run
 * @param state where it stands
 * @param scorer the registered scorer
 * @param score its judgement, from 0 to 1; null where there is none
 * @param reason why it judged so
 * @param error why it failed; while it waits, why the last attempt did
 * @param attempts the attempts that were begun
 * @param samplingRatio the share of runs it is done for; null for all
 * @param usage what models used for it
 * @param duration how long the last attempt took
 * @param createTime when the run ended
 * @param finishTime when it was settled; null while it is not
 * @param title the title that the thread was given; null where there is none
 */
public record FollowUp(
    FollowUpKind kind,
    String name,
    FollowUpState state,
    String scorer,
    Double score,
    String reason,
    String error,
    int attempts,
    Double samplingRatio,
    Usage usage,
    Duration duration,
    Instant createTime,
    Instant finishTime,
    String title) {
  static FollowUp of(dev.entracte.v1.FollowUp m) {
    return new FollowUp(
        FollowUpKind.of(m.getKind()),
        m.getName(),
        FollowUpState.of(m.getState()),
        m.getScorer(),
        m.hasScore() ? m.getScore().getScore() : null,
        m.getScore().getReason(),
        m.getError(),
        m.getAttempts(),
        m.hasSamplingRatio() ? m.getSamplingRatio() : null,
        Usage.of(m.getUsage()),
        Wire.duration(true, m.getDuration()),
        Wire.time(m.hasCreateTime(), m.getCreateTime()),
        Wire.time(m.hasFinishTime(), m.getFinishTime()),
        m.hasTitle() ? m.getTitle() : null);
  }
}
