package dev.entracte;

import dev.entracte.v1.FilePart;
import dev.entracte.v1.ImagePart;
import dev.entracte.v1.ReasoningPart;
import dev.entracte.v1.TextPart;
import dev.entracte.v1.ToolCallPart;
import dev.entracte.v1.ToolResultPart;

/** Parts of messages from and to the wire. */
final class MessageParts {
  private MessageParts() {}

  /** Reads a part; null for one that this version does not know. */
  static MessagePart read(dev.entracte.v1.MessagePart m) {
    return switch (m.getPartCase()) {
      case TEXT -> MessagePart.Text.of(m.getText());
      case IMAGE -> MessagePart.Image.of(m.getImage());
      case FILE -> MessagePart.File.of(m.getFile());
      case TOOL_CALL -> call(m.getToolCall());
      case TOOL_RESULT -> result(m.getToolResult());
      case REASONING -> MessagePart.Reasoning.of(m.getReasoning());
      case PART_NOT_SET -> null;
    };
  }

  static dev.entracte.v1.MessagePart write(MessagePart part) {
    dev.entracte.v1.MessagePart.Builder m = dev.entracte.v1.MessagePart.newBuilder();
    if (part instanceof MessagePart.Text text) {
      m.setText(write(text));
    } else if (part instanceof MessagePart.Image image) {
      m.setImage(write(image));
    } else if (part instanceof MessagePart.File file) {
      m.setFile(write(file));
    } else if (part instanceof MessagePart.ToolCall call) {
      m.setToolCall(write(call));
    } else if (part instanceof MessagePart.ToolResult result) {
      m.setToolResult(write(result));
    } else if (part instanceof MessagePart.Reasoning thinking) {
      m.setReasoning(write(thinking));
    }
    return m.build();
  }

  private static MessagePart call(ToolCallPart m) {
    return new MessagePart.ToolCall(
        m.getToolCallId(),
        m.getToolName(),
        Wire.json(m.hasArgs(), m.getArgs()),
        Wire.json(m.hasProviderMetadata(), m.getProviderMetadata()));
  }

  private static MessagePart result(ToolResultPart m) {
    return new MessagePart.ToolResult(
        m.getToolCallId(),
        m.getToolName(),
        Wire.json(m.hasResult(), m.getResult()),
        m.getIsError());
  }

  private static TextPart write(MessagePart.Text text) {
    TextPart.Builder m = TextPart.newBuilder().setText(text.text());
    if (text.providerMetadata() != null) {
      m.setProviderMetadata(text.providerMetadata().wire());
    }
    return m.build();
  }

  private static ImagePart write(MessagePart.Image image) {
    ImagePart.Builder m = ImagePart.newBuilder().setMediaType(image.mediaType());
    return (image.data().isEmpty() ? m.setUrl(image.url()) : m.setData(image.data())).build();
  }

  private static FilePart write(MessagePart.File file) {
    FilePart.Builder m =
        FilePart.newBuilder().setMediaType(file.mediaType()).setFilename(file.filename());
    return (file.data().isEmpty() ? m.setUrl(file.url()) : m.setData(file.data())).build();
  }

  private static ToolCallPart write(MessagePart.ToolCall call) {
    ToolCallPart.Builder m =
        ToolCallPart.newBuilder()
            .setToolCallId(call.toolCallId())
            .setToolName(call.toolName())
            .setArgs(call.args().wire());
    if (call.providerMetadata() != null) {
      m.setProviderMetadata(call.providerMetadata().wire());
    }
    return m.build();
  }

  private static ToolResultPart write(MessagePart.ToolResult result) {
    return ToolResultPart.newBuilder()
        .setToolCallId(result.toolCallId())
        .setToolName(result.toolName())
        .setResult(result.result().wire())
        .setIsError(result.isError())
        .build();
  }

  private static ReasoningPart write(MessagePart.Reasoning thinking) {
    ReasoningPart.Builder m = ReasoningPart.newBuilder().setText(thinking.text());
    if (thinking.signature() != null) {
      m.setSignature(thinking.signature());
    }
    if (thinking.redacted() != null) {
      m.setRedacted(thinking.redacted());
    }
    if (thinking.providerMetadata() != null) {
      m.setProviderMetadata(thinking.providerMetadata().wire());
    }
    return m.build();
  }
}
