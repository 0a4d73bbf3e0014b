package dev.entracte;

import java.time.Instant;

/**
 * What agents noted down for later runs, of a thread or of a resource.
 *
 * @param threadId the thread whose it is; empty where it is a resource's
 * @param resourceId the resource whose it is; empty where it is a thread's
 * @param content what was noted: markdown, or the text of a JSON object; empty where nothing was
 * @param version grows with every change, from 1; 0 where nothing was noted
 * @param updateTime when it last changed; null where nothing was noted
 */
public record WorkingMemory(
    String threadId, String resourceId, String content, long version, Instant updateTime) {
  static WorkingMemory of(dev.entracte.v1.WorkingMemory m) {
    return new WorkingMemory(
        m.getThreadId(),
        m.getResourceId(),
        m.getContent(),
        m.getVersion(),
        Wire.time(m.hasUpdateTime(), m.getUpdateTime()));
  }
}
