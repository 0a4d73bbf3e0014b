package dev.entracte;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import java.util.logging.Level;
import java.util.logging.Logger;

/** Calls callbacks, one after the other, on a thread of its own. */
final class Observer {
  private static final Logger LOG = Logger.getLogger("dev.entracte");
  private static final long GRACE_SECONDS = 5;
  private static final Runnable END = () -> {};

  private final Callbacks callbacks;
  private final ExecutorService threads;
  private final BlockingQueue<Runnable> queue = new LinkedBlockingQueue<>();
  private Future<?> running;

  Observer(Callbacks callbacks, ExecutorService threads) {
    this.callbacks = callbacks;
    this.threads = threads;
  }

  boolean wants(Callbacks.Event event) {
    return callbacks.of(event) != null;
  }

  /** Has a callback called, if there is one. */
  void emit(Callbacks.Event event, Object value) {
    Consumer<Object> function = callbacks.of(event);
    if (function == null) {
      return;
    }
    queue.add(() -> call(event, function, value));
    if (running == null) {
      running = threads.submit(this::run);
    }
  }

  /** Waits until all were called, for a time. */
  void drain() {
    if (running == null) {
      return;
    }
    queue.add(END);
    try {
      running.get(GRACE_SECONDS, TimeUnit.SECONDS);
    } catch (TimeoutException behind) {
      LOG.warning("callbacks did not end within " + GRACE_SECONDS + " s and were given up");
    } catch (ExecutionException error) {
      LOG.log(Level.WARNING, "callbacks ended early", error.getCause());
    } catch (InterruptedException interruption) {
      Thread.currentThread().interrupt();
    } finally {
      running.cancel(true);
      running = null;
    }
  }

  private void run() {
    try {
      for (Runnable next = queue.take(); next != END; next = queue.take()) {
        next.run();
      }
    } catch (InterruptedException interruption) {
      Thread.currentThread().interrupt(); // given up
    }
  }

  private static void call(Callbacks.Event event, Consumer<Object> function, Object value) {
    try {
      function.accept(value);
    } catch (RuntimeException error) {
      LOG.log(Level.WARNING, "the callback for " + event + " threw", error);
    }
  }
}
