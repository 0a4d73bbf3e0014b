package dev.entracte;

/** A piece of a message of a thread. */
public sealed interface ThreadPart {
  /**
   * Plain text.
   *
   * @param text the text
   */
  record Text(String text) implements ThreadPart {}

  /**
   * What the model thought before it spoke.
   *
   * @param thinking the thinking
   */
  record Reasoning(MessagePart.Reasoning thinking) implements ThreadPart {}

  /**
   * A tool call with what came of it.
   *
   * @param toolCallId identifies it within its run
   * @param toolName the tool
   * @param args the arguments, an object
   * @param state what came of it
   * @param result what the tool returned; null where there is no result
   * @param error what the model was told where there is none, or why it was declined
   */
  record ToolInvocation(
      String toolCallId,
      String toolName,
      Json args,
      ToolInvocationState state,
      Json result,
      String error)
      implements ThreadPart {}

  /**
   * A picture.
   *
   * @param image the picture
   */
  record Image(MessagePart.Image image) implements ThreadPart {}

  /**
   * A file.
   *
   * @param file the file
   */
  record File(MessagePart.File file) implements ThreadPart {}

  /**
   * Something the model cited.
   *
   * @param id the provider's id of it
   * @param url where it is
   * @param title what it is called
   */
  record Source(String id, String url, String title) implements ThreadPart {}

  /**
   * Why there is no more of an answer.
   *
   * @param code the kind of failure, as a run's error has it
   * @param message what happened
   */
  record Failure(String code, String message) implements ThreadPart {}

  /**
   * Data under a name.
   *
   * @param name the name; {@code object} for the object of a structured answer
   * @param data the value
   */
  record Data(String name, Json data) implements ThreadPart {}
}
