package dev.entracte;

import java.util.List;

/**
 * A change of the open calls.
 *
 * @param opened calls that opened, or whose claim changed
 * @param closed the ids of calls that are no longer open
 * @param snapshotComplete true once, when all calls open at the start were told
 */
public record InboxChange(
    List<PendingCall> opened, List<String> closed, boolean snapshotComplete) {}
