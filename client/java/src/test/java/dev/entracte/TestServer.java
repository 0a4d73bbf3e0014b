package dev.entracte;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * The real server, in a process of its own. It ends when its input does, so with this process too.
 */
final class TestServer implements AutoCloseable {
  private static final Path ROOT = Path.of("../..").toAbsolutePath().normalize();
  private static TestServer shared;

  private final Process process;
  private final String address;

  private TestServer(Process process, String address) {
    this.process = process;
    this.address = address;
  }

  /** Runs a command with the address of a server behind its arguments, and ends as it does. */
  public static void main(String... command) throws Exception {
    int code;
    try (TestServer server = start()) {
      List<String> whole = new ArrayList<>(List.of(command));
      whole.add(server.address());
      code = new ProcessBuilder(whole).inheritIO().start().waitFor();
    }
    System.exit(code);
  }

  /** One server for all tests that leave it as it is. */
  static synchronized TestServer shared() {
    if (shared == null) {
      shared = start();
    }
    return shared;
  }

  /** Starts a server: on an address and a store, or on a free port and a store of its own. */
  static TestServer start(String... addressAndStore) {
    List<String> command =
        new ArrayList<>(List.of(ROOT + "/.venv/bin/python", "-m", "tests.sdk_server"));
    command.addAll(List.of(addressAndStore));
    ProcessBuilder builder = new ProcessBuilder(command).directory(ROOT.toFile());
    builder.environment().put("GRPC_VERBOSITY", "NONE");
    builder.redirectError(ProcessBuilder.Redirect.INHERIT);
    try {
      Process process = builder.start();
      BufferedReader output = process.inputReader(StandardCharsets.UTF_8);
      String address = output.readLine();
      if (address == null) {
        throw new IllegalStateException("the server did not start");
      }
      return new TestServer(process, address);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  String address() {
    return address;
  }

  EntracteClient connect() {
    return EntracteClient.connect(address);
  }

  /** Ends it as a crash does. */
  void kill() {
    process.destroyForcibly();
    await();
  }

  @Override
  public void close() {
    try {
      process.getOutputStream().close();
    } catch (IOException gone) {
      process.destroyForcibly();
    }
    await();
  }

  private void await() {
    try {
      if (!process.waitFor(30, TimeUnit.SECONDS)) {
        process.destroyForcibly();
      }
    } catch (InterruptedException interruption) {
      Thread.currentThread().interrupt();
    }
  }
}
