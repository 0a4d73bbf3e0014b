package dev.entracte.errors;

/**
 * The tenant has as many sessions of workers, or versions of their tools, as it may. Metadata:
 * {@code limit}, {@code scope}.
 */
public final class TooManyWorkersException extends ResourceExhaustedException {
  private static final long serialVersionUID = 1L;

  TooManyWorkersException(ErrorDetails details) {
    super(details);
  }
}
