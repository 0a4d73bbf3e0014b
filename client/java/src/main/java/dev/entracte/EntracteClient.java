package dev.entracte;

import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannelBuilder;
import io.grpc.TlsChannelCredentials;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * A connection to an Entracte server.
 *
 * <pre>{@code
 * try (EntracteClient client = EntracteClient.connect("localhost:50051")) {
 *   System.out.println(client.agent("support").generate("Hello").text());
 * }
 * }</pre>
 *
 * <p>It keeps one channel: make one client and share it between threads. Nothing is connected
 * before the first call.
 */
public final class EntracteClient implements AutoCloseable {
  /** The version of this SDK. */
  public static final String VERSION = "0.1.0";

  private static final int MESSAGE_LIMIT = 16 * 1024 * 1024;

  private final Connection connection;
  private final RunsClient runs;
  private final InboxClient inbox;
  private final ThreadsClient threads;

  private EntracteClient(Connection connection) {
    RequestOptions options = new RequestOptions(connection.timeout(), "");
    this.connection = connection;
    this.runs = new RunsClient(connection, options);
    this.inbox = new InboxClient(connection, options);
    this.threads = new ThreadsClient(connection, options);
  }

  /**
   * A client in plain text, with the default settings.
   *
   * @param address {@code host:port}, or any name gRPC resolves, for example {@code
   *     dns:///host:port}
   * @return the client, to be closed
   */
  public static EntracteClient connect(String address) {
    return builder(address).build();
  }

  /**
   * A client with settings of its own.
   *
   * @param address {@code host:port}, or any name gRPC resolves, for example {@code
   *     dns:///host:port}
   * @return what makes it
   */
  public static Builder builder(String address) {
    return new Builder(address);
  }

  /**
   * An agent by its id. Whether it exists shows when a run is started: {@code
   * AgentNotFoundException}.
   *
   * @param id the id
   * @return the agent
   */
  public AgentClient agent(String id) {
    return new AgentClient(connection, id);
  }

  /**
   * Looking at runs, following them, ending them.
   *
   * @return the runs
   */
  public RunsClient runs() {
    return runs;
  }

  /**
   * What waits for people, and what people decided.
   *
   * @return the inbox
   */
  public InboxClient inbox() {
    return inbox;
  }

  /**
   * Conversations: making, reading, changing and deleting them.
   *
   * @return the threads
   */
  public ThreadsClient threads() {
    return threads;
  }

  /**
   * Closes the connection. Streams and waits that are open end with a {@code CancelledException}.
   */
  @Override
  public void close() {
    connection.close();
  }

  /** Settings of a client. */
  public static final class Builder {
    private final String address;
    private String apiKey;
    private ChannelCredentials credentials = InsecureChannelCredentials.create();
    private Duration timeout = Duration.ofSeconds(30);
    private Backoff.Limits limits = Backoff.Limits.DEFAULT;
    private Consumer<ManagedChannelBuilder<?>> channel = builder -> {};

    private Builder(String address) {
      this.address = address;
    }

    /**
     * A key that is sent with every call.
     *
     * @param apiKey the key
     * @return this builder
     */
    public Builder apiKey(String apiKey) {
      this.apiKey = apiKey;
      return this;
    }

    /**
     * Reaches the server over TLS, verified with the root certificates of the Java runtime.
     *
     * @return this builder
     */
    public Builder tls() {
      this.credentials = TlsChannelCredentials.create();
      return this;
    }

    /**
     * Reaches the server over TLS, verified with root certificates of one's own.
     *
     * @param certificates a file with certificates in PEM
     * @return this builder
     * @throws UncheckedIOException if the file cannot be read
     */
    public Builder tls(Path certificates) {
      try (InputStream roots = Files.newInputStream(certificates)) {
        this.credentials = TlsChannelCredentials.newBuilder().trustManager(roots).build();
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
      return this;
    }

    /**
     * Credentials for anything else, for example client certificates.
     *
     * @param credentials gRPC's channel credentials
     * @return this builder
     */
    public Builder credentials(ChannelCredentials credentials) {
      this.credentials = credentials;
      return this;
    }

    /**
     * The longest a plain request may take. Waiting for a run has no limit unless a call says so.
     *
     * @param timeout the time, 30 s where it is not given; null for no limit
     * @return this builder
     */
    public Builder timeout(Duration timeout) {
      this.timeout = timeout;
      return this;
    }

    /**
     * How long calls and streams wait for a server that was there before and is not now, trying
     * again without progress. A call's own timeout may end that earlier.
     *
     * @param patience the time, 60 s where it is not given
     * @return this builder
     */
    public Builder reattachTimeout(Duration patience) {
      this.limits = limits.with(patience);
      return this;
    }

    /**
     * Changes the gRPC channel before it is made, for example with interceptors.
     *
     * @param change what is done to its builder
     * @return this builder
     */
    public Builder channel(Consumer<ManagedChannelBuilder<?>> change) {
      this.channel = change;
      return this;
    }

    /** Other pauses between attempts. */
    Builder limits(Backoff.Limits limits) {
      this.limits = limits;
      return this;
    }

    /**
     * Makes the client. Nothing is connected before its first call.
     *
     * @return the client, to be closed
     */
    public EntracteClient build() {
      ManagedChannelBuilder<?> builder =
          Grpc.newChannelBuilder(address, credentials)
              .userAgent("entracte-java/" + VERSION)
              .maxInboundMessageSize(MESSAGE_LIMIT)
              // Servers tolerate a ping every 10 s; a dead connection is noticed within 30 s.
              .keepAliveTime(20, TimeUnit.SECONDS)
              .keepAliveTimeout(10, TimeUnit.SECONDS)
              // Nothing that is called on arrival takes long.
              .directExecutor();
      channel.accept(builder);
      return new EntracteClient(new Connection(builder.build(), apiKey, timeout, limits));
    }
  }
}
