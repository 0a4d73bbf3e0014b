package dev.entracte;

import java.time.Duration;
import java.util.function.Consumer;

/**
 * The conversation a run belongs to.
 *
 * <p>Immutable: each method returns a copy.
 */
public final class Memory {
  private final dev.entracte.v1.MemoryOptions wire;

  private Memory(dev.entracte.v1.MemoryOptions wire) {
    this.wire = wire;
  }

  /**
   * A thread of a resource. The thread is created where it does not exist.
   *
   * @param threadId the thread
   * @param resourceId whose memory it is, for example a user's id
   * @return the option
   */
  public static Memory of(String threadId, String resourceId) {
    return new Memory(
        dev.entracte.v1.MemoryOptions.newBuilder()
            .setThread(dev.entracte.v1.ThreadRef.newBuilder().setId(threadId))
            .setResource(resourceId)
            .build());
  }

  /**
   * The memory of a resource, without a thread.
   *
   * @param resourceId whose memory it is
   * @return the option
   */
  public static Memory ofResource(String resourceId) {
    return new Memory(dev.entracte.v1.MemoryOptions.newBuilder().setResource(resourceId).build());
  }

  /**
   * The title of a thread that is created.
   *
   * @param threadTitle up to 1,000 characters
   * @return a copy with it
   */
  public Memory threadTitle(String threadTitle) {
    return with(m -> m.setThread(m.getThread().toBuilder().setTitle(threadTitle)));
  }

  /**
   * What is kept beside a thread that is created.
   *
   * @param threadMetadata an object
   * @return a copy with it
   */
  public Memory threadMetadata(Json threadMetadata) {
    return with(m -> m.setThread(m.getThread().toBuilder().setMetadata(threadMetadata.wire())));
  }

  /**
   * How many earlier messages are shown to the model.
   *
   * @param lastMessages 0 for none
   * @return a copy with it
   */
  public Memory lastMessages(int lastMessages) {
    return with(m -> m.setLastMessages(lastMessages));
  }

  /**
   * Whether new messages are saved.
   *
   * @param saveMessages true where it is not given
   * @return a copy with it
   */
  public Memory saveMessages(boolean saveMessages) {
    return with(m -> m.setSaveMessages(saveMessages));
  }

  /**
   * Whether nothing at all is written.
   *
   * @param readOnly false where it is not given
   * @return a copy with it
   */
  public Memory readOnly(boolean readOnly) {
    return with(m -> m.setReadOnly(readOnly));
  }

  /**
   * Search in older messages.
   *
   * @param semanticRecall how
   * @return a copy with it
   */
  public Memory semanticRecall(SemanticRecall semanticRecall) {
    return with(m -> m.setSemanticRecall(semanticRecall.wire()));
  }

  /**
   * Whether the model has the working memory that the agent is made with.
   *
   * @param workingMemory true where it is not given
   * @return a copy with it
   */
  public Memory workingMemory(boolean workingMemory) {
    return with(m -> m.setWorkingMemory(workingMemory));
  }

  /**
   * Whether calls without a result are left out of the history.
   *
   * @param filterIncompleteToolCalls true where it is not given
   * @return a copy with it
   */
  public Memory filterIncompleteToolCalls(boolean filterIncompleteToolCalls) {
    return with(m -> m.setFilterIncompleteToolCalls(filterIncompleteToolCalls));
  }

  /**
   * Whether a thread without a title is given one after the reply.
   *
   * @param generateTitle the agent's setting where it is not given
   * @return a copy with it
   */
  public Memory generateTitle(boolean generateTitle) {
    return with(m -> m.setGenerateTitle(generateTitle));
  }

  /**
   * What happens while another run has the thread.
   *
   * @param onBusyThread refused where it is not given
   * @return a copy with it
   */
  public Memory onBusyThread(OnBusy onBusyThread) {
    return with(
        m -> m.setOnBusyThread(Enums.write(dev.entracte.v1.OnBusyThread.class, onBusyThread)));
  }

  /**
   * What happens when the run that has the thread is parked.
   *
   * @param onParkedThread refused where it is not given
   * @return a copy with it
   */
  public Memory onParkedThread(OnParked onParkedThread) {
    return with(
        m ->
            m.setOnParkedThread(Enums.write(dev.entracte.v1.OnParkedThread.class, onParkedThread)));
  }

  /**
   * How long the run may wait for the thread.
   *
   * @param queueTimeout up to 366 days
   * @return a copy with it
   */
  public Memory queueTimeout(Duration queueTimeout) {
    return with(m -> m.setQueueTimeout(Wire.duration(queueTimeout)));
  }

  /**
   * About how many tokens of earlier messages are shown at most.
   *
   * @param maxHistoryTokens the agent's setting where it is not given
   * @return a copy with it
   */
  public Memory maxHistoryTokens(int maxHistoryTokens) {
    return with(m -> m.setMaxHistoryTokens(maxHistoryTokens));
  }

  dev.entracte.v1.MemoryOptions wire() {
    return wire;
  }

  private Memory with(Consumer<dev.entracte.v1.MemoryOptions.Builder> change) {
    dev.entracte.v1.MemoryOptions.Builder copy = wire.toBuilder();
    change.accept(copy);
    return new Memory(copy.build());
  }

  /** What happens to a new run while another one has its thread. */
  public enum OnBusy {
    /** It is refused. */
    REFUSE,
    /** It waits until those that came before it have ended. */
    QUEUE
  }

  /** What happens to a new run while a parked one has its thread. */
  public enum OnParked {
    /** It is refused. */
    REFUSE,
    /** The parked run is cancelled. */
    CANCEL,
    /** It waits until the parked one has ended. */
    QUEUE
  }
}
