package dev.entracte.errors;

/** The edited arguments do not fit the tool's schema; the call still waits. */
public final class EditedArgsInvalidException extends InvalidArgumentException {
  private static final long serialVersionUID = 1L;

  EditedArgsInvalidException(ErrorDetails details) {
    super(details);
  }
}
