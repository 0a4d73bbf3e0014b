package dev.entracte;

import com.google.protobuf.ByteString;

/** A piece of a message. */
public sealed interface MessagePart {
  /**
   * Plain text.
   *
   * @param text the text
   * @param providerMetadata what the provider attached, sent back unchanged; null for nothing
   */
  record Text(String text, Json providerMetadata) implements MessagePart {
    static Text of(dev.entracte.v1.TextPart m) {
      return new Text(m.getText(), Wire.json(m.hasProviderMetadata(), m.getProviderMetadata()));
    }
  }

  /**
   * A picture, by URL or as bytes.
   *
   * @param url where it is, handed to the model's provider as it is; empty for bytes
   * @param data the picture itself; empty for a URL
   * @param mediaType for example {@code image/png}; required with bytes
   */
  record Image(String url, ByteString data, String mediaType) implements MessagePart {
    static Image of(dev.entracte.v1.ImagePart m) {
      return new Image(m.getUrl(), m.getData(), m.getMediaType());
    }
  }

  /**
   * A file, by URL or as bytes.
   *
   * @param url where it is, handed to the model's provider as it is; empty for bytes
   * @param data the file itself; empty for a URL
   * @param mediaType for example {@code application/pdf}; required with bytes
   * @param filename the name to tell the model; empty for none
   */
  record File(String url, ByteString data, String mediaType, String filename)
      implements MessagePart {
    static File of(dev.entracte.v1.FilePart m) {
      return new File(m.getUrl(), m.getData(), m.getMediaType(), m.getFilename());
    }
  }

  /**
   * A tool call the model made.
   *
   * @param toolCallId identifies it within its conversation
   * @param toolName the tool
   * @param args the arguments, an object
   * @param providerMetadata what the provider attached, sent back unchanged; null for nothing
   */
  record ToolCall(String toolCallId, String toolName, Json args, Json providerMetadata)
      implements MessagePart {}

  /**
   * The answer to a tool call. Every tool call in a history needs exactly one.
   *
   * @param toolCallId the call that is answered
   * @param toolName the tool
   * @param result what it returned, or the error's text as a JSON string
   * @param isError whether the result is an error
   */
  record ToolResult(String toolCallId, String toolName, Json result, boolean isError)
      implements MessagePart {}

  /**
   * What the model thought before it spoke.
   *
   * @param text the thinking as text
   * @param signature the provider's signature, sent back unchanged; null for none
   * @param redacted thinking that the provider encrypted, sent back unchanged; null for none
   * @param providerMetadata what else it attached, sent back unchanged; null for nothing
   */
  record Reasoning(String text, String signature, String redacted, Json providerMetadata)
      implements MessagePart {
    static Reasoning of(dev.entracte.v1.ReasoningPart m) {
      return new Reasoning(
          m.getText(),
          m.hasSignature() ? m.getSignature() : null,
          m.hasRedacted() ? m.getRedacted() : null,
          Wire.json(m.hasProviderMetadata(), m.getProviderMetadata()));
    }
  }

  /**
   * Plain text.
   *
   * @param text the text
   * @return the part
   */
  static MessagePart text(String text) {
    return new Text(text, null);
  }

  /**
   * A picture that the model's provider fetches.
   *
   * @param url where it is, or a {@code data:} URL
   * @return the part
   */
  static MessagePart image(String url) {
    return new Image(url, ByteString.EMPTY, "");
  }

  /**
   * A picture.
   *
   * @param data the picture itself
   * @param mediaType for example {@code image/png}
   * @return the part
   */
  static MessagePart image(byte[] data, String mediaType) {
    return new Image("", ByteString.copyFrom(data), mediaType);
  }

  /**
   * A file.
   *
   * @param data the file itself
   * @param mediaType for example {@code application/pdf}
   * @param filename the name to tell the model; empty for none
   * @return the part
   */
  static MessagePart file(byte[] data, String mediaType, String filename) {
    return new File("", ByteString.copyFrom(data), mediaType, filename);
  }
}
