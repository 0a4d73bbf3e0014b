package dev.entracte;

/**
 * What a processor said when it stopped something.
 *
 * @param reason why
 * @param retry whether the step should be tried again
 * @param processorId the processor
 * @param metadata what the processor attached, an object; null where there is none
 */
public record Tripwire(String reason, boolean retry, String processorId, Json metadata) {
  static Tripwire of(dev.entracte.v1.Tripwire m) {
    return new Tripwire(
        m.getReason(),
        m.getRetry(),
        m.getProcessorId(),
        Wire.json(m.hasMetadata(), m.getMetadata()));
  }
}
