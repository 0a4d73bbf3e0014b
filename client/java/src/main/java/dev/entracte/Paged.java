package dev.entracte;

import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.function.Function;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * A list that comes in pages; each page is asked for when it is needed. It can be read any number
 * of times, and begins anew each time.
 *
 * @param <T> what is listed
 */
public final class Paged<T> implements Iterable<T> {
  private final Function<String, Page<T>> pageAfter;

  Paged(Function<String, Page<T>> pageAfter) {
    this.pageAfter = pageAfter;
  }

  /**
   * One page.
   *
   * @param token the token of the page before; empty for the first page
   * @return the page
   */
  public Page<T> page(String token) {
    return pageAfter.apply(token);
  }

  /**
   * All items, one after the other.
   *
   * @return a stream that reads page after page
   */
  public Stream<T> stream() {
    return StreamSupport.stream(spliterator(), false);
  }

  @Override
  public Iterator<T> iterator() {
    return new Iterator<>() {
      private String token = "";
      private Iterator<T> items;

      @Override
      public boolean hasNext() {
        while (items == null || (!items.hasNext() && !token.isEmpty())) {
          Page<T> page = pageAfter.apply(token);
          items = page.items().iterator();
          token = page.nextPageToken();
        }
        return items.hasNext();
      }

      @Override
      public T next() {
        if (!hasNext()) {
          throw new NoSuchElementException("the list has ended");
        }
        return items.next();
      }
    };
  }
}
