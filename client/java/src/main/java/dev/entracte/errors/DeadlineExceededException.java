package dev.entracte.errors;

/** The timeout passed. It bounds the wait, not the run, which goes on. */
public class DeadlineExceededException extends EntracteException {
  private static final long serialVersionUID = 1L;

  DeadlineExceededException(ErrorDetails details) {
    super(details);
  }
}
