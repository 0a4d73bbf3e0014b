package dev.entracte.errors;

import java.io.Serializable;

/**
 * One fault of a request.
 *
 * @param field the path of the field
 * @param description what is wrong with it
 */
public record FieldViolation(String field, String description) implements Serializable {}
