package dev.entracte;

import java.util.function.Consumer;

/**
 * An answer that fits a JSON Schema; it is in the result's {@code object}.
 *
 * <p>Immutable: each method returns a copy.
 */
public final class StructuredOutput {
  private final dev.entracte.v1.StructuredOutput wire;

  private StructuredOutput(dev.entracte.v1.StructuredOutput wire) {
    this.wire = wire;
  }

  /**
   * An answer that fits a schema.
   *
   * @param schema a JSON Schema, of any kind of value
   * @return the option
   */
  public static StructuredOutput of(Json schema) {
    return new StructuredOutput(
        dev.entracte.v1.StructuredOutput.newBuilder().setSchema(schema.wire()).build());
  }

  /**
   * A second model that turns the first one's prose into the object.
   *
   * @param model {@code provider/model}
   * @return a copy with it
   */
  public StructuredOutput model(String model) {
    return with(m -> m.setModel(model));
  }

  /**
   * What to do with an answer that does not fit.
   *
   * @param errorStrategy strict where it is not given
   * @return a copy with it
   */
  public StructuredOutput errorStrategy(ErrorStrategy errorStrategy) {
    return with(
        m ->
            m.setErrorStrategy(
                Enums.write(dev.entracte.v1.StructuredOutput.ErrorStrategy.class, errorStrategy)));
  }

  /**
   * The object to use where the answer does not fit; sets the strategy too.
   *
   * @param fallbackValue a value that fits the schema
   * @return a copy with it
   */
  public StructuredOutput fallbackValue(Json fallbackValue) {
    return with(
        m ->
            m.setFallbackValue(fallbackValue.wire())
                .setErrorStrategy(
                    dev.entracte.v1.StructuredOutput.ErrorStrategy.ERROR_STRATEGY_FALLBACK));
  }

  /**
   * Said to the model that makes the object, beside the schema.
   *
   * @param instructions instructions
   * @return a copy with it
   */
  public StructuredOutput instructions(String instructions) {
    return with(m -> m.setInstructions(instructions));
  }

  /**
   * Where the schema is told to the model.
   *
   * @param jsonPromptInjection automatic where it is not given
   * @return a copy with it
   */
  public StructuredOutput jsonPromptInjection(PromptInjection jsonPromptInjection) {
    return with(
        m ->
            m.setJsonPromptInjection(
                Enums.write(
                    dev.entracte.v1.StructuredOutput.PromptInjection.class, jsonPromptInjection)));
  }

  /**
   * Provider options for the second model.
   *
   * @param providerOptions an object by provider
   * @return a copy with it
   */
  public StructuredOutput providerOptions(Json providerOptions) {
    return with(m -> m.setProviderOptions(providerOptions.wire()));
  }

  dev.entracte.v1.StructuredOutput wire() {
    return wire;
  }

  private StructuredOutput with(Consumer<dev.entracte.v1.StructuredOutput.Builder> change) {
    dev.entracte.v1.StructuredOutput.Builder copy = wire.toBuilder();
    change.accept(copy);
    return new StructuredOutput(copy.build());
  }

  /** What to do with an answer that does not fit. */
  public enum ErrorStrategy {
    /** The run fails. */
    STRICT,
    /** The result has a warning and no object. */
    WARN,
    /** The fallback value is the object. */
    FALLBACK
  }

  /** Where the schema is told to the model. */
  public enum PromptInjection {
    /** Natively where the provider can, else in a system message. */
    AUTO,
    /** Never in the prompt. */
    OFF,
    /** In a system message. */
    SYSTEM,
    /** In the last user message. */
    INLINE
  }
}
