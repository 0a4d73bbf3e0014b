package entracte

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	pb "entracte.dev/go/entracte/v1"
)

const (
	messageLimit = 16 << 20
	runIDKey     = "entracte-run-id"
)

// dialOptions are those of every connection; the caller's come after them.
func dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithUserAgent("entracte-go/" + Version),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(messageLimit), grpc.MaxCallSendMsgSize(messageLimit),
		),
		// Servers tolerate a ping every 10 s; a dead connection is noticed within 30 s.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		// A server that comes back is found within seconds.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: grpcbackoff.Config{
				BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second,
			},
			MinConnectTimeout: 5 * time.Second,
		}),
	}
}

// connection is the one channel of a client with the stubs on it.
type connection struct {
	channel  *grpc.ClientConn
	agents   pb.AgentServiceClient
	runs     pb.RunServiceClient
	inbox    pb.InboxServiceClient
	threads  pb.ThreadServiceClient
	apiKey   string
	timeout  time.Duration
	patience time.Duration
	pauses   pauses
	log      *slog.Logger
	reached  atomic.Bool
	closed   atomic.Bool
}

// close ends the channel and what goes on over it.
func (c *connection) close() error {
	c.closed.Store(true)
	return c.channel.Close()
}

// answered says that the server said something. From now on a call that finds it gone waits for it.
func (c *connection) answered() { c.reached.Store(true) }

// backoff is the pauses of one call with all its repetitions.
func (c *connection) backoff() *backoff {
	return &backoff{pauses: c.pauses, patience: c.patience, reached: c.reached.Load(), closed: &c.closed}
}

// outgoing is a context with what is sent beside a request.
func (c *connection) outgoing(ctx context.Context, traceparent string) context.Context {
	if c.apiKey != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.apiKey)
	}
	if traceparent != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", traceparent)
	}
	return ctx
}

// bounded is a context with the client's own timeout, where it has no deadline yet.
func (c *connection) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has || c.timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.timeout)
}

// attempt is what is known of a call when it has ended, beside its status.
type attempt struct {
	header, trailer metadata.MD
	server          peer.Peer
}

func (a *attempt) options() []grpc.CallOption {
	return []grpc.CallOption{grpc.Header(&a.header), grpc.Trailer(&a.trailer), grpc.Peer(&a.server)}
}

// brokeOff tells that a connection broke before the server had said anything to the call. There was a server, then,
// which may have done what it was asked.
func (a *attempt) brokeOff() bool {
	return a.server.Addr != nil && len(a.header) == 0 && len(a.trailer) == 0
}

// unary is the method of a stub.
type unary[Request, Response any] = func(context.Context, *Request, ...grpc.CallOption) (*Response, error)

// call makes a unary call within its context, which bounds it with all its repetitions.
//
// Unary calls only read or carry a request id, so that the same request may be sent again. It is while the
// server is away, or says that it is, as long as the backoff allows: a server that never answered is given up
// quickly, one that did gets the time that a restart takes.
func call[Request, Response any](
	ctx context.Context, c *connection, method unary[Request, Response], request *Request, traceparent string,
) (*Response, error) {
	pauses := c.backoff()
	ctx = c.outgoing(ctx, traceparent)
	for {
		pauses.begin()
		var attempt attempt
		response, err := method(ctx, request, attempt.options()...)
		if err == nil {
			c.answered()
			return response, nil
		}
		if ctx.Err() != nil {
			return nil, contextError(ctx)
		}
		failure := errorOf(err)
		taken := len(attempt.header.Get(runIDKey)) > 0
		if taken || detailsOf(failure).Reason != "" { // the transport's own statuses have none
			c.answered()
		}
		if attempt.brokeOff() {
			c.answered()
			pauses.reached = true
		}
		if taken {
			pauses.answered()
		}
		if cannot := sendable(failure, request); cannot != nil {
			return nil, cannot
		}
		if !pauses.mayTryAgain(failure) {
			return nil, failure
		}
		if err := pauses.pause(ctx, failure); err != nil {
			return nil, err
		}
	}
}

// plain makes a unary call that waits for nothing but its answer: the client's timeout bounds it.
func plain[Request, Response any](
	ctx context.Context, c *connection, method unary[Request, Response], request *Request,
) (*Response, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	return call(ctx, c, method, request, "")
}

// sendable is the error of a request that never left, as its texts are not UTF-8; nil for any other failure.
func sendable(failure error, request any) error {
	message, is := request.(proto.Message)
	if given := detailsOf(failure); !is || given.Code != codes.Internal || given.Reason != "" {
		return nil
	}
	if _, err := proto.Marshal(message); err != nil {
		return invalid("the request", err)
	}
	return nil
}
