package dev.entracte;

/**
 * A tool that this process executes.
 *
 * <pre>{@code
 * ClientTool.of("locate", "Finds a city.", schema, args -> args.get("city").asString() + " is north");
 * }</pre>
 *
 * @param name its name: 1 to 64 letters, digits, {@code _} and {@code -}, not one of the agent's
 *     tools
 * @param description what it does, for the model
 * @param inputSchema the JSON Schema of its arguments, an object schema; null for no arguments
 * @param function what is called; null for a tool whose calls the caller answers with {@code
 *     submitToolResult}
 */
public record ClientTool(String name, String description, Json inputSchema, Function function) {
  /** What a tool does. It may be called on any thread, and several at a time. */
  @FunctionalInterface
  public interface Function {
    /**
     * Executes a call.
     *
     * @param args the arguments, an object
     * @return what the tool returns, any value that {@link Json#of} takes
     * @throws Exception when the tool fails: the message goes to the model
     */
    Object call(Json args) throws Exception;
  }

  /**
   * A tool with a function.
   *
   * @param name its name
   * @param description what it does, for the model
   * @param inputSchema the JSON Schema of its arguments; null for no arguments
   * @param function what is called
   * @return the tool
   */
  public static ClientTool of(
      String name, String description, Json inputSchema, Function function) {
    return new ClientTool(name, description, inputSchema, function);
  }

  /**
   * A tool without a function: its calls wait until they are answered.
   *
   * @param name its name
   * @param description what it does, for the model
   * @param inputSchema the JSON Schema of its arguments; null for no arguments
   * @return the tool
   */
  public static ClientTool declared(String name, String description, Json inputSchema) {
    return new ClientTool(name, description, inputSchema, null);
  }

  dev.entracte.v1.ClientTool wire() {
    dev.entracte.v1.ClientTool.Builder m =
        dev.entracte.v1.ClientTool.newBuilder().setName(name).setDescription(description);
    if (inputSchema != null) {
      m.setInputSchema(inputSchema.wire());
    }
    return m.build();
  }
}
