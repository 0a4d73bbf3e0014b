package dev.entracte;

import dev.entracte.errors.EntracteException;
import dev.entracte.v1.CreateThreadRequest;
import dev.entracte.v1.DeleteThreadRequest;
import dev.entracte.v1.GetThreadRequest;
import dev.entracte.v1.GetWorkingMemoryRequest;
import dev.entracte.v1.ListThreadMessagesResponse;
import dev.entracte.v1.ListThreadsResponse;
import dev.entracte.v1.ThreadServiceGrpc;
import dev.entracte.v1.UpdateThreadRequest;
import dev.entracte.v1.UpdateWorkingMemoryRequest;
import java.util.List;

/**
 * The conversations of a server: making, reading, changing and deleting them. Runs make threads,
 * too: see {@link Memory}. Methods throw {@link EntracteException}, {@code ThreadNotFoundException}
 * for one. Safe for use by several threads.
 */
public final class ThreadsClient {
  private final Connection connection;
  private final RequestOptions options;

  ThreadsClient(Connection connection, RequestOptions options) {
    this.connection = connection;
    this.options = options;
  }

  /**
   * The same with other options of its requests.
   *
   * @param options time limit and request id
   * @return another client on the same connection
   */
  public ThreadsClient with(RequestOptions options) {
    return new ThreadsClient(connection, options);
  }

  /**
   * The options of its requests.
   *
   * @return time limit and request id
   */
  public RequestOptions options() {
    return options;
  }

  /**
   * Makes a thread, whose id the server makes.
   *
   * @param resourceId whose memory it belongs to, for example a user's id
   * @return the thread
   */
  public ThreadInfo create(String resourceId) {
    return create("", resourceId, "", null);
  }

  /**
   * Makes a thread. Refused with {@code ThreadExistsException} where the id is taken.
   *
   * @param threadId the id; made by the server where empty
   * @param resourceId whose memory it belongs to, for example a user's id
   * @param title a title; empty for none
   * @param metadata anything to keep beside it, an object; null for nothing
   * @return the thread
   */
  public ThreadInfo create(String threadId, String resourceId, String title, Json metadata) {
    CreateThreadRequest.Builder request =
        CreateThreadRequest.newBuilder()
            .setThreadId(threadId)
            .setResourceId(resourceId)
            .setTitle(title)
            .setRequestId(options.anyRequestId());
    if (metadata != null) {
      request.setMetadata(metadata.wire());
    }
    return ThreadInfo.of(
        connection
            .call(ThreadServiceGrpc.getCreateThreadMethod(), request.build(), options.timeout())
            .getThread());
  }

  /**
   * Reads a thread.
   *
   * @param threadId the thread
   * @return the thread
   */
  public ThreadInfo get(String threadId) {
    GetThreadRequest request = GetThreadRequest.newBuilder().setThreadId(threadId).build();
    return ThreadInfo.of(
        connection
            .call(ThreadServiceGrpc.getGetThreadMethod(), request, options.timeout())
            .getThread());
  }

  /**
   * All threads that fit, newest first.
   *
   * @param filter which
   * @return the threads, page after page
   */
  public Paged<ThreadInfo> list(ThreadFilter filter) {
    return new Paged<>(
        token -> {
          ListThreadsResponse response =
              connection.call(
                  ThreadServiceGrpc.getListThreadsMethod(),
                  filter.wire().toBuilder().setPageToken(token).build(),
                  options.timeout());
          return new Page<>(
              response.getThreadsList().stream().map(ThreadInfo::of).toList(),
              response.getNextPageToken());
        });
  }

  /**
   * Changes a thread.
   *
   * @param threadId the thread
   * @param title the new title, empty to take it away; null leaves it as it is
   * @param metadata the new metadata in place of the old, an object; null leaves it as it is
   * @return the thread
   */
  public ThreadInfo update(String threadId, String title, Json metadata) {
    UpdateThreadRequest.Builder request =
        UpdateThreadRequest.newBuilder().setThreadId(threadId).setRequestId(options.anyRequestId());
    if (title != null) {
      request.setTitle(title);
    }
    if (metadata != null) {
      request.setMetadata(metadata.wire());
    }
    return ThreadInfo.of(
        connection
            .call(ThreadServiceGrpc.getUpdateThreadMethod(), request.build(), options.timeout())
            .getThread());
  }

  /**
   * Deletes a thread with its messages and its runs. While a run has it or waits for it, only with
   * {@code force}; else {@code ThreadBusyException} or {@code ThreadParkedException}.
   *
   * @param threadId the thread
   * @param force whether such runs are cancelled
   * @return the ids of the runs that were asked to cancel
   */
  public List<String> delete(String threadId, boolean force) {
    DeleteThreadRequest request =
        DeleteThreadRequest.newBuilder()
            .setThreadId(threadId)
            .setForce(force)
            .setRequestId(options.anyRequestId())
            .build();
    return List.copyOf(
        connection
            .call(ThreadServiceGrpc.getDeleteThreadMethod(), request, options.timeout())
            .getCancelledRunIdsList());
  }

  /**
   * All messages of a thread that fit, in its order or from the newest on.
   *
   * @param threadId the thread
   * @param filter which
   * @return the messages, page after page
   */
  public Paged<ThreadMessage> messages(String threadId, MessageFilter filter) {
    return new Paged<>(
        token -> {
          ListThreadMessagesResponse response =
              connection.call(
                  ThreadServiceGrpc.getListThreadMessagesMethod(),
                  filter.wire().toBuilder().setThreadId(threadId).setPageToken(token).build(),
                  options.timeout());
          return new Page<>(
              response.getMessagesList().stream().map(ThreadMessage::of).toList(),
              response.getNextPageToken());
        });
  }

  /**
   * What agents noted down of a thread.
   *
   * @param threadId the thread
   * @return its working memory
   */
  public WorkingMemory workingMemory(String threadId) {
    return read(GetWorkingMemoryRequest.newBuilder().setThreadId(threadId));
  }

  /**
   * What agents noted down of a resource, in all its threads.
   *
   * @param resourceId the resource
   * @return its working memory
   */
  public WorkingMemory workingMemoryOfResource(String resourceId) {
    return read(GetWorkingMemoryRequest.newBuilder().setResourceId(resourceId));
  }

  /**
   * Replaces what agents noted down of a thread.
   *
   * @param threadId the thread
   * @param content all of it from now on, markdown or the text of an object; empty for nothing
   * @param expectedVersion the version that was read, else {@code WorkingMemoryChangedException};
   *     null for any
   * @return the working memory as it is now
   */
  public WorkingMemory updateWorkingMemory(String threadId, String content, Long expectedVersion) {
    return write(
        UpdateWorkingMemoryRequest.newBuilder().setThreadId(threadId), content, expectedVersion);
  }

  /**
   * Replaces what agents noted down of a resource.
   *
   * @param resourceId the resource
   * @param content all of it from now on, markdown or the text of an object; empty for nothing
   * @param expectedVersion the version that was read, else {@code WorkingMemoryChangedException};
   *     null for any
   * @return the working memory as it is now
   */
  public WorkingMemory updateWorkingMemoryOfResource(
      String resourceId, String content, Long expectedVersion) {
    return write(
        UpdateWorkingMemoryRequest.newBuilder().setResourceId(resourceId),
        content,
        expectedVersion);
  }

  private WorkingMemory read(GetWorkingMemoryRequest.Builder request) {
    return WorkingMemory.of(
        connection
            .call(ThreadServiceGrpc.getGetWorkingMemoryMethod(), request.build(), options.timeout())
            .getWorkingMemory());
  }

  private WorkingMemory write(
      UpdateWorkingMemoryRequest.Builder request, String content, Long expectedVersion) {
    request.setContent(content).setRequestId(options.anyRequestId());
    if (expectedVersion != null) {
      request.setExpectedVersion(expectedVersion);
    }
    return WorkingMemory.of(
        connection
            .call(
                ThreadServiceGrpc.getUpdateWorkingMemoryMethod(),
                request.build(),
                options.timeout())
            .getWorkingMemory());
  }
}
