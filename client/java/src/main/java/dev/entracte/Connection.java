package dev.entracte;

import dev.entracte.errors.CancelledException;
import dev.entracte.errors.EntracteException;
import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import java.time.Duration;
import java.util.UUID;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/** The one channel of a client, and how calls are made on it. */
final class Connection {
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<String> TRACEPARENT =
      Metadata.Key.of("traceparent", Metadata.ASCII_STRING_MARSHALLER);

  private final ManagedChannel channel;
  private final String apiKey;
  private final Duration timeout;
  private final Backoff.Limits limits;
  private final ExecutorService threads = Executors.newCachedThreadPool(Connection::thread);
  private final Object change = new Object();
  private volatile boolean closed;
  private volatile boolean reached;

  Connection(ManagedChannel channel, String apiKey, Duration timeout, Backoff.Limits limits) {
    this.channel = channel;
    this.apiKey = apiKey;
    this.timeout = timeout;
    this.limits = limits;
  }

  /** An id for a run or a request that nobody has used. */
  static String newId() {
    return UUID.randomUUID().toString().replace("-", "");
  }

  /** The longest a plain request may take; null for ever. */
  Duration timeout() {
    return timeout;
  }

  /** Threads for client tools and callbacks. */
  ExecutorService threads() {
    return threads;
  }

  /** The pauses of one call with all its repetitions. */
  Backoff backoff(Deadline deadline) {
    return new Backoff(limits, deadline, reached);
  }

  /** The server said something: from now on a call that finds it gone waits for it to come back. */
  void answered() {
    reached = true;
  }

  /** Wakes whoever pauses, to look whether it is to stop. */
  void wake() {
    synchronized (change) {
      change.notifyAll();
    }
  }

  /**
   * Waits before the next attempt. Ends early when {@code stopped} says so. Throws the error when
   * there is to be no other attempt, CancelledException when the thread is interrupted or the
   * client closed.
   */
  void pause(Backoff backoff, EntracteException error, BooleanSupplier stopped) {
    long end = System.nanoTime() + backoff.pauseAfter(error);
    synchronized (change) {
      while (!closed && !stopped.getAsBoolean()) {
        long left = end - System.nanoTime();
        if (left <= 0) {
          break;
        }
        try {
          change.wait(left / 1_000_000, (int) (left % 1_000_000));
        } catch (InterruptedException interruption) {
          Thread.currentThread().interrupt();
          throw new CancelledException("the thread was interrupted; the run goes on");
        }
      }
    }
    channel.resetConnectBackoff(); // the pauses are ours
  }

  /** Starts a call with a time limit in nanoseconds, null for none. */
  <Q, R> Responses<R> open(
      MethodDescriptor<Q, R> method, Q request, Long nanos, String traceparent) {
    checkOpen();
    CallOptions options = CallOptions.DEFAULT;
    if (nanos != null) {
      options = options.withDeadlineAfter(nanos, TimeUnit.NANOSECONDS);
    }
    Metadata metadata = new Metadata();
    if (apiKey != null) {
      metadata.put(AUTHORIZATION, "Bearer " + apiKey);
    }
    if (traceparent != null) {
      metadata.put(TRACEPARENT, traceparent);
    }
    return Responses.of(channel.newCall(method, options), request, metadata);
  }

  <Q, R> R call(MethodDescriptor<Q, R> method, Q request, Duration within) {
    return call(method, request, within, null);
  }

  /**
   * Makes a unary call, within a time that bounds it with all its repetitions; null for none.
   *
   * <p>Unary calls only read or carry a request id, so that the same request may be sent again. It
   * is while the server is away, or says that it is, as long as the back-off allows.
   */
  <Q, R> R call(MethodDescriptor<Q, R> method, Q request, Duration within, String traceparent) {
    Deadline deadline = new Deadline(within);
    Backoff backoff = backoff(deadline);
    while (true) {
      backoff.begin();
      EntracteException error;
      Responses<R> responses = open(method, request, deadline.remaining(), traceparent);
      try {
        R response = responses.next();
        answered();
        return response;
      } catch (EntracteException failure) {
        error = failure;
      }
      if (responses.taken() || !error.reason().isEmpty()) {
        answered(); // the transport's own statuses have no reason
      }
      if (responses.taken()) {
        backoff.answered();
      }
      checkOpen();
      if (!backoff.mayTryAgain(error)) {
        throw error;
      }
      pause(backoff, error, () -> false);
    }
  }

  /** Closes the channel; calls in progress end. */
  void close() {
    closed = true;
    wake();
    channel.shutdownNow();
    threads.shutdownNow();
  }

  /** Throws CancelledException when the client is closed. */
  void checkOpen() {
    if (closed) {
      throw new CancelledException("the client is closed");
    }
  }

  private static Thread thread(Runnable work) {
    Thread thread = new Thread(work, "entracte");
    thread.setDaemon(true);
    return thread;
  }
}
