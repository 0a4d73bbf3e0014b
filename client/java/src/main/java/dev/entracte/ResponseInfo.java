package dev.entracte;

import java.time.Instant;
import java.util.List;
import java.util.Map;

/**
 * An answer of a model.
 *
 * @param id the provider's id of it
 * @param timestamp when it was made, by the provider; null where it does not say
 * @param modelId the model, as the provider names it
 * @param headers its HTTP headers, those that identify or limit requests
 * @param messages the messages the run added to the conversation
 * @param uiMessages the same with what processors attached; empty where they attached nothing
 * @param requestLimit how many requests the provider allows; null where it does not say
 * @param tokenLimit how many tokens the provider allows; null where it does not say
 */
public record ResponseInfo(
    String id,
    Instant timestamp,
    String modelId,
    Map<String, String> headers,
    List<Message> messages,
    List<Message> uiMessages,
    RateLimit requestLimit,
    RateLimit tokenLimit) {
  static ResponseInfo of(dev.entracte.v1.ResponseInfo m) {
    return new ResponseInfo(
        m.getId(),
        Wire.time(m.hasTimestamp(), m.getTimestamp()),
        m.getModelId(),
        Map.copyOf(m.getHeadersMap()),
        m.getMessagesList().stream().map(Message::of).toList(),
        m.getUiMessagesList().stream().map(Message::of).toList(),
        m.hasRequestLimit() ? RateLimit.of(m.getRequestLimit()) : null,
        m.hasTokenLimit() ? RateLimit.of(m.getTokenLimit()) : null);
  }
}
