package dev.entracte;

import java.time.Instant;
import java.util.List;

/**
 * One message of a thread.
 *
 * @param id identifies it within its thread
 * @param position its place in the thread, from 1
 * @param role who speaks
 * @param parts what is said, in order; parts newer than this SDK are left out
 * @param author the principal who sent it, or the id of the agent that answered
 * @param createTime when it was said
 * @param runId the run it was said in
 * @param step the step of that run; 0 for what was said to the agent
 * @param metadata what is kept beside it; null where there is nothing
 * @param aborted whether the answer was cut off
 * @param omittedParts how many of its parts are left out because it is too large
 */
public record ThreadMessage(
    String id,
    long position,
    Role role,
    List<ThreadPart> parts,
    String author,
    Instant createTime,
    String runId,
    int step,
    Json metadata,
    boolean aborted,
    int omittedParts) {
  static ThreadMessage of(dev.entracte.v1.ThreadMessage m) {
    return new ThreadMessage(
        m.getId(),
        m.getPosition(),
        Role.of(m.getRole()),
        Wire.all(m.getPartsList(), ThreadParts::read),
        m.getAuthor(),
        Wire.time(m.hasCreateTime(), m.getCreateTime()),
        m.getRunId(),
        m.getStep(),
        Wire.json(m.hasMetadata(), m.getMetadata()),
        m.getAborted(),
        m.getOmittedParts());
  }

  /**
   * The text parts, one after the other.
   *
   * @return the text; empty where there is none
   */
  public String text() {
    StringBuilder text = new StringBuilder();
    for (ThreadPart part : parts) {
      if (part instanceof ThreadPart.Text piece) {
        text.append(piece.text());
      }
    }
    return text.toString();
  }
}
