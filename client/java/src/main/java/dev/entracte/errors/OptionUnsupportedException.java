package dev.entracte.errors;

/** An option is not supported by this server. Metadata: {@code field}. */
public final class OptionUnsupportedException extends UnimplementedException {
  private static final long serialVersionUID = 1L;

  OptionUnsupportedException(ErrorDetails details) {
    super(details);
  }
}
