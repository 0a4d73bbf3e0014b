package dev.entracte;

import java.util.List;

/**
 * One turn of a conversation.
 *
 * @param role who speaks
 * @param parts what is said, in order
 * @param metadata anything to keep beside it, never shown to a model; null for nothing
 * @param id identifies it; made by the server where empty
 */
public record Message(Role role, List<MessagePart> parts, Json metadata, String id) {
  /**
   * Keeps a copy of the parts.
   *
   * @param role who speaks
   * @param parts what is said, in order
   * @param metadata anything to keep beside it, never shown to a model; null for nothing
   * @param id identifies it; made by the server where empty
   */
  public Message {
    parts = List.copyOf(parts);
  }

  /**
   * A message of parts.
   *
   * @param role who speaks
   * @param parts what is said
   * @return the message
   */
  public static Message of(Role role, MessagePart... parts) {
    return new Message(role, List.of(parts), null, "");
  }

  /**
   * What the person says.
   *
   * @param text the text
   * @return the message
   */
  public static Message user(String text) {
    return of(Role.USER, MessagePart.text(text));
  }

  /**
   * Directions to the model.
   *
   * @param text the text
   * @return the message
   */
  public static Message system(String text) {
    return of(Role.SYSTEM, MessagePart.text(text));
  }

  /**
   * What the model said.
   *
   * @param text the text
   * @return the message
   */
  public static Message assistant(String text) {
    return of(Role.ASSISTANT, MessagePart.text(text));
  }

  /**
   * The text parts, one after the other.
   *
   * @return the text; empty where there is none
   */
  public String text() {
    StringBuilder text = new StringBuilder();
    for (MessagePart part : parts) {
      if (part instanceof MessagePart.Text piece) {
        text.append(piece.text());
      }
    }
    return text.toString();
  }

  /** Reads a message. Parts that this version does not know are left out. */
  static Message of(dev.entracte.v1.Message m) {
    return new Message(
        Role.of(m.getRole()),
        Wire.all(m.getPartsList(), MessageParts::read),
        Wire.json(m.hasMetadata(), m.getMetadata()),
        m.getId());
  }

  static List<dev.entracte.v1.Message> wire(List<Message> messages) {
    return messages.stream().map(Message::wire).toList();
  }

  private dev.entracte.v1.Message wire() {
    dev.entracte.v1.Message.Builder m =
        dev.entracte.v1.Message.newBuilder()
            .setRole(Enums.write(dev.entracte.v1.Role.class, role))
            .setId(id);
    parts.forEach(part -> m.addParts(MessageParts.write(part)));
    if (metadata != null) {
      m.setMetadata(metadata.wire());
    }
    return m.build();
  }
}
