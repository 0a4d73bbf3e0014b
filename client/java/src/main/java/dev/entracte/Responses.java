package dev.entracte;

import dev.entracte.errors.CancelledException;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.Status;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/**
 * The responses of one call, read by one thread. Any thread may cancel it. No more responses are
 * asked for than are read.
 */
final class Responses<R> {
  private static final Metadata.Key<String> RUN_ID =
      Metadata.Key.of("entracte-run-id", Metadata.ASCII_STRING_MARSHALLER);

  private final BlockingQueue<Object> arrived = new LinkedBlockingQueue<>();
  private final ClientCall<?, R> call;
  private volatile boolean taken;

  private record End(Status status, Metadata trailers) {}

  private Responses(ClientCall<?, R> call) {
    this.call = call;
  }

  /** Starts a call with its only request. */
  static <Q, R> Responses<R> of(ClientCall<Q, R> call, Q request, Metadata metadata) {
    Responses<R> responses = new Responses<>(call);
    call.start(responses.new Listener(), metadata);
    call.request(1);
    try {
      call.sendMessage(request);
      call.halfClose();
    } catch (RuntimeException error) {
      call.cancel("the request could not be sent", error);
      throw error;
    }
    return responses;
  }

  /**
   * The next response; null after the last one. Throws EntracteException for a status other than
   * OK, CancelledException when the thread is interrupted, which also cancels the call.
   */
  R next() {
    Object item;
    try {
      item = arrived.take();
    } catch (InterruptedException interruption) {
      cancel();
      Thread.currentThread().interrupt();
      throw new CancelledException("the thread was interrupted; the run goes on");
    }
    if (item instanceof End end) {
      arrived.add(end); // for whoever asks again
      if (end.status().isOk()) {
        return null;
      }
      throw Statuses.errorOf(end.status(), end.trailers());
    }
    call.request(1);
    @SuppressWarnings("unchecked") // the queue has ends and responses only
    R response = (R) item;
    return response;
  }

  /** Whether the server has told the run's id, and so taken the call. */
  boolean taken() {
    return taken;
  }

  void cancel() {
    call.cancel("given up by the caller", null);
  }

  private final class Listener extends ClientCall.Listener<R> {
    @Override
    public void onHeaders(Metadata headers) {
      taken = headers.containsKey(RUN_ID);
    }

    @Override
    public void onMessage(R message) {
      arrived.add(message);
    }

    @Override
    public void onClose(Status status, Metadata trailers) {
      arrived.add(new End(status, trailers));
    }
  }
}
