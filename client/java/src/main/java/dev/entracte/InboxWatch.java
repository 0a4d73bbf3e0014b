package dev.entracte;

import dev.entracte.errors.EntracteException;
import dev.entracte.errors.StreamBrokenException;
import dev.entracte.v1.InboxServiceGrpc;
import dev.entracte.v1.WatchPendingCallsRequest;
import dev.entracte.v1.WatchPendingCallsResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Set;

/**
 * The open calls, then every change, without end.
 *
 * <p>A broken connection is made good: after it only what changed meanwhile is told. One thread
 * reads; any thread may {@link #close()} it, which ends the reading.
 */
public final class InboxWatch implements Iterable<InboxChange>, AutoCloseable {
  private final Connection connection;
  private final WatchPendingCallsRequest request;
  private final Deadline deadline;
  private final Backoff backoff;
  private final View view = new View();
  private volatile Responses<WatchPendingCallsResponse> call;
  private volatile boolean closed;
  private InboxChange peeked;

  InboxWatch(Connection connection, WatchPendingCallsRequest request, Duration timeout) {
    this.connection = connection;
    this.request = request;
    this.deadline = new Deadline(timeout);
    this.backoff = connection.backoff(deadline);
  }

  /**
   * The changes that were not handed out yet.
   *
   * @return an iterator, whose methods wait for the next change and throw {@link EntracteException}
   */
  @Override
  public Iterator<InboxChange> iterator() {
    return new Iterator<>() {
      @Override
      public boolean hasNext() {
        if (peeked == null) {
          peeked = advance();
        }
        return peeked != null;
      }

      @Override
      public InboxChange next() {
        if (!hasNext()) {
          throw new NoSuchElementException("the watch is closed");
        }
        InboxChange change = peeked;
        peeked = null;
        return change;
      }
    };
  }

  /** Stops watching. */
  @Override
  public void close() {
    closed = true;
    Responses<WatchPendingCallsResponse> current = call;
    if (current != null) {
      current.cancel();
    }
    connection.wake();
  }

  private InboxChange advance() {
    while (!closed) {
      EntracteException error;
      try {
        if (call == null) {
          view.startOver();
          backoff.begin();
          call =
              connection.open(
                  InboxServiceGrpc.getWatchPendingCallsMethod(),
                  request,
                  deadline.remaining(),
                  null);
          if (closed) {
            continue; // by a thread that could not see the call yet
          }
        }
        WatchPendingCallsResponse response = call.next();
        if (response != null) {
          connection.answered();
          backoff.answered();
          InboxChange change = view.change(response);
          if (change == null) {
            continue;
          }
          backoff.progress();
          return change;
        }
        error = new StreamBrokenException("the server ended a watch that has no end", Map.of());
      } catch (EntracteException failure) {
        if (closed) {
          break;
        }
        connection.checkOpen();
        if (!backoff.mayTryAgain(failure)) {
          throw failure;
        }
        error = failure;
      }
      call = null;
      connection.pause(backoff, error, () -> closed);
    }
    Responses<WatchPendingCallsResponse> current = call;
    if (current != null) {
      current.cancel();
    }
    return null;
  }

  /** The open calls as the caller knows them, over any number of connections. */
  private static final class View {
    private final Map<String, PendingCall> known = new LinkedHashMap<>();
    private final Set<String> seen = new HashSet<>();
    private boolean told;
    private boolean inSnapshot = true;

    /** A new connection begins with a snapshot. */
    void startOver() {
      seen.clear();
      inSnapshot = true;
    }

    /** What is new to the caller; null if nothing is. */
    InboxChange change(WatchPendingCallsResponse message) {
      List<PendingCall> opened = new ArrayList<>();
      for (dev.entracte.v1.PendingCall item : message.getOpenedList()) {
        PendingCall call = PendingCall.of(item);
        if (!call.equals(known.put(call.pendingCallId(), call))) {
          opened.add(call);
        }
        if (inSnapshot) {
          seen.add(call.pendingCallId());
        }
      }
      List<String> closed = new ArrayList<>();
      for (String id : message.getClosedPendingCallIdsList()) {
        if (known.remove(id) != null) {
          closed.add(id);
        }
      }
      boolean first = false;
      if (message.getSnapshotComplete()) {
        // What was open before and is not in the snapshot was closed in between.
        for (String id : List.copyOf(known.keySet())) {
          if (!seen.contains(id)) {
            known.remove(id);
            closed.add(id);
          }
        }
        first = !told;
        told = true;
        inSnapshot = false;
      }
      if (opened.isEmpty() && closed.isEmpty() && !first) {
        return null;
      }
      return new InboxChange(List.copyOf(opened), List.copyOf(closed), first);
    }
  }
}
