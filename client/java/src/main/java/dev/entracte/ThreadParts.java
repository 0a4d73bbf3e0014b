package dev.entracte;

/** Parts of messages of threads from the wire. */
final class ThreadParts {
  private ThreadParts() {}

  /** Reads a part; null for one that this version does not know. */
  static ThreadPart read(dev.entracte.v1.ThreadPart m) {
    return switch (m.getPartCase()) {
      case TEXT -> new ThreadPart.Text(m.getText().getText());
      case REASONING -> new ThreadPart.Reasoning(MessagePart.Reasoning.of(m.getReasoning()));
      case TOOL_INVOCATION -> invocation(m.getToolInvocation());
      case IMAGE -> new ThreadPart.Image(MessagePart.Image.of(m.getImage()));
      case FILE -> new ThreadPart.File(MessagePart.File.of(m.getFile()));
      case SOURCE ->
          new ThreadPart.Source(
              m.getSource().getId(), m.getSource().getUrl(), m.getSource().getTitle());
      case ERROR -> new ThreadPart.Failure(m.getError().getCode(), m.getError().getMessage());
      case DATA ->
          new ThreadPart.Data(
              m.getData().getName(), Wire.json(m.getData().hasData(), m.getData().getData()));
      case PART_NOT_SET -> null;
    };
  }

  private static ThreadPart invocation(dev.entracte.v1.ToolInvocation m) {
    return new ThreadPart.ToolInvocation(
        m.getToolCallId(),
        m.getToolName(),
        Wire.json(m.hasArgs(), m.getArgs()),
        ToolInvocationState.of(m.getState()),
        Wire.json(m.hasResult(), m.getResult()),
        m.getError());
  }
}
