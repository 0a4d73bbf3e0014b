package dev.entracte;

import java.util.List;

/**
 * A page of a list.
 *
 * @param items what is on it
 * @param nextPageToken for the next page; empty on the last one
 * @param <T> what is listed
 */
public record Page<T>(List<T> items, String nextPageToken) {}
