package entracte

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	pb "entracte.dev/go/entracte/v1"
)

// Client is a connection to an Entracte server. Make one and share it: it may be used from any number of
// goroutines. Nothing is connected before the first call.
type Client struct {
	// Runs looks at runs, follows them, ends them.
	Runs *RunsClient
	// Inbox shows what waits for people, and what people decided.
	Inbox *InboxClient
	// Threads makes, reads, changes and deletes conversations.
	Threads *ThreadsClient

	connection *connection
}

type clientSettings struct {
	apiKey      string
	credentials credentials.TransportCredentials
	dial        []grpc.DialOption
	timeout     time.Duration
	patience    time.Duration
	log         *slog.Logger
	err         error
}

// ClientOption is an option of [NewClient].
type ClientOption func(*clientSettings)

// WithAPIKey sends a key with every call.
func WithAPIKey(key string) ClientOption {
	return func(s *clientSettings) { s.apiKey = key }
}

// WithTLS reaches the server over TLS and verifies it, with the system's root certificates.
func WithTLS() ClientOption {
	return func(s *clientSettings) { s.credentials = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12}) }
}

// WithRootCertificates reaches the server over TLS and verifies it with these root certificates, in PEM.
func WithRootCertificates(pem []byte) ClientOption {
	return func(s *clientSettings) {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			s.err = errors.New("WithRootCertificates: there is no certificate in that PEM")
		}
		s.credentials = credentials.NewTLS(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
	}
}

// WithTransportCredentials is for any other way to reach the server, client certificates for example.
func WithTransportCredentials(given credentials.TransportCredentials) ClientOption {
	return func(s *clientSettings) { s.credentials = given }
}

// WithDialOptions adds options of gRPC to those of the connection.
func WithDialOptions(options ...grpc.DialOption) ClientOption {
	return func(s *clientSettings) { s.dial = append(s.dial, options...) }
}

// WithTimeout bounds plain requests whose context has no deadline; 30 seconds if this is not given, and 0 for
// no bound. Waiting for a run is bounded by the context alone.
func WithTimeout(timeout time.Duration) ClientOption {
	return func(s *clientSettings) { s.timeout = timeout }
}

// WithReattachTimeout says how long calls and streams wait for a server that was there before and is not now,
// trying again without progress: 60 seconds if this is not given. A context's deadline may end that earlier.
func WithReattachTimeout(timeout time.Duration) ClientOption {
	return func(s *clientSettings) { s.patience = timeout }
}

// WithLogger says where it is told that a callback or a client tool panicked; [slog.Default] if this is not
// given.
func WithLogger(log *slog.Logger) ClientOption {
	return func(s *clientSettings) { s.log = log }
}

// NewClient makes a client of the server at an address: host:port, or any name gRPC resolves
// (dns:///host:port, unix:/path). Without [WithTLS] and its like the connection is in plain text.
func NewClient(address string, options ...ClientOption) (*Client, error) {
	settings := clientSettings{
		credentials: insecure.NewCredentials(),
		timeout:     30 * time.Second,
		patience:    60 * time.Second,
	}
	for _, option := range options {
		option(&settings)
	}
	if settings.err != nil {
		return nil, settings.err
	}
	dial := append(dialOptions(), grpc.WithTransportCredentials(settings.credentials))
	channel, err := grpc.NewClient(address, append(dial, settings.dial...)...)
	if err != nil {
		return nil, fmt.Errorf("entracte: the address %q: %w", address, err)
	}
	if settings.log == nil {
		settings.log = slog.Default()
	}
	connected := &connection{
		channel:  channel,
		agents:   pb.NewAgentServiceClient(channel),
		runs:     pb.NewRunServiceClient(channel),
		inbox:    pb.NewInboxServiceClient(channel),
		threads:  pb.NewThreadServiceClient(channel),
		apiKey:   settings.apiKey,
		timeout:  settings.timeout,
		patience: settings.patience,
		pauses:   usualPauses,
		log:      settings.log,
	}
	return &Client{
		Runs:       &RunsClient{connected},
		Inbox:      &InboxClient{connected},
		Threads:    &ThreadsClient{connected},
		connection: connected,
	}, nil
}

// Agent is an agent by its id. Whether it exists shows when a run is started: [AgentNotFound].
func (c *Client) Agent(id string) *Agent {
	return &Agent{id: id, connection: c.connection}
}

// Close closes the connection. Calls and streams that are under way end with an error.
func (c *Client) Close() error { return c.connection.close() }
