package dev.entracte.errors;

/** The principal lacks a role. Metadata: {@code role}. */
public final class RoleRequiredException extends PermissionDeniedException {
  private static final long serialVersionUID = 1L;

  RoleRequiredException(ErrorDetails details) {
    super(details);
  }
}
