package dev.entracte;

import java.time.Instant;

/**
 * A conversation as the server keeps it.
 *
 * @param threadId the id
 * @param resourceId whose memory it belongs to
 * @param title a title; empty where it has none
 * @param metadata what is kept beside it, an object; null where there is nothing
 * @param createTime when it was made
 * @param updateTime when something of it last changed
 * @param messageCount how many messages it has
 * @param activeRunId the run that has the thread, perhaps parked; empty where it is free
 * @param activeRunState where that run stands; null where the thread is free
 * @param queuedRuns how many runs wait for the thread
 */
public record ThreadInfo(
    String threadId,
    String resourceId,
    String title,
    Json metadata,
    Instant createTime,
    Instant updateTime,
    long messageCount,
    String activeRunId,
    RunState activeRunState,
    int queuedRuns) {
  static ThreadInfo of(dev.entracte.v1.Thread m) {
    return new ThreadInfo(
        m.getThreadId(),
        m.getResourceId(),
        m.getTitle(),
        Wire.json(m.hasMetadata(), m.getMetadata()),
        Wire.time(m.hasCreateTime(), m.getCreateTime()),
        Wire.time(m.hasUpdateTime(), m.getUpdateTime()),
        m.getMessageCount(),
        m.getActiveRunId(),
        RunState.of(m.getActiveRunState()),
        m.getQueuedRuns());
  }
}
