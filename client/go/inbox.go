package entracte

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc/codes"

	pb "entracte.dev/go/entracte/v1"
)

// InboxClient shows what waits for people: [Client.Inbox]. Decide with [Agent.Approve] and its siblings.
type InboxClient struct{ connection *connection }

// InboxFilter is which pending calls are listed; what is empty does not filter.
type InboxFilter struct {
	RunID    string
	AgentID  string
	ThreadID string
	// ResourceID is that of the memory that the calls' runs use.
	ResourceID string
	// IncludeDecided tells that decided calls are listed, too.
	IncludeDecided bool
	// PageSize is how many calls one request asks for, 1 to 1000. Default 50.
	PageSize int
}

// InboxWatchFilter is which open calls are watched; what is empty does not filter.
type InboxWatchFilter struct {
	RunID      string
	AgentID    string
	ResourceID string
}

// DecisionFilter is which decisions are listed; what is empty does not filter.
type DecisionFilter struct {
	RunID         string
	PendingCallID string
	Principal     string
	// PageSize is how many decisions one request asks for, 1 to 1000. Default 50.
	PageSize int
}

// ClaimOptions say how a call is claimed or released.
type ClaimOptions struct {
	// TTL is how long the claim lasts, 1 s to 1 day. Default 5 minutes.
	TTL time.Duration
	// RequestID makes the request safe to repeat from elsewhere, too.
	RequestID string
}

// InboxChange is a change of the open calls: those that opened or whose claim changed, and the ids of those no
// longer open. SnapshotComplete is true once, when all calls open at the start were given.
type InboxChange struct {
	Opened           []*PendingCall
	Closed           []string
	SnapshotComplete bool
}

// List gives all pending calls that fit, oldest first; it asks for page after page.
func (c *InboxClient) List(ctx context.Context, filter InboxFilter) iter.Seq2[*PendingCall, error] {
	return allItems(func(token string) (Page[*PendingCall], error) { return c.ListPage(ctx, filter, token) })
}

// ListPage is one page of [InboxClient.List]. Errors: [PageTokenInvalid].
func (c *InboxClient) ListPage(ctx context.Context, filter InboxFilter, pageToken string) (Page[*PendingCall], error) {
	response, err := plain(ctx, c.connection, c.connection.inbox.ListPendingCalls, &pb.ListPendingCallsRequest{
		PageSize:       pageSize(filter.PageSize),
		PageToken:      pageToken,
		RunId:          filter.RunID,
		AgentId:        filter.AgentID,
		ThreadId:       filter.ThreadID,
		ResourceId:     filter.ResourceID,
		IncludeDecided: filter.IncludeDecided,
	})
	if err != nil {
		return Page[*PendingCall]{}, err
	}
	return Page[*PendingCall]{mapped(response.PendingCalls, pendingCallOf), response.NextPageToken}, nil
}

// Get reads a pending call, decided or not. Errors: [PendingCallNotFound].
func (c *InboxClient) Get(ctx context.Context, pendingCallID string) (*PendingCall, error) {
	response, err := plain(ctx, c.connection, c.connection.inbox.GetPendingCall,
		&pb.GetPendingCallRequest{PendingCallId: pendingCallID})
	if err != nil {
		return nil, err
	}
	return pendingCallOf(response.PendingCall), nil
}

// Watch gives the open calls, then every change, until the context is done or the loop is left. A broken connection
// is made good: after it only what changed meanwhile is told. An error is the last thing it gives.
func (c *InboxClient) Watch(ctx context.Context, filter InboxWatchFilter) iter.Seq2[InboxChange, error] {
	request := &pb.WatchPendingCallsRequest{
		RunId: filter.RunID, AgentId: filter.AgentID, ResourceId: filter.ResourceID,
	}
	return func(yield func(InboxChange, error) bool) {
		pauses := c.connection.backoff()
		view := newInboxView()
		for {
			pauses.begin()
			view.startOver()
			left, failure := c.watchOnce(ctx, request, view, pauses, yield)
			if left {
				return
			}
			if ctx.Err() != nil {
				failure = contextError(ctx)
			} else if pauses.mayTryAgain(failure) || isBroken(failure) {
				failure = pauses.pause(ctx, failure)
			}
			if failure != nil {
				yield(InboxChange{}, failure)
				return
			}
		}
	}
}

func (c *InboxClient) watchOnce(
	ctx context.Context, request *pb.WatchPendingCallsRequest, view *inboxView, pauses *backoff,
	yield func(InboxChange, error) bool,
) (left bool, failure error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.connection.inbox.WatchPendingCalls(c.connection.outgoing(ctx, ""), request)
	if err != nil {
		return false, errorOf(err)
	}
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return false, StreamBroken{StreamError{&Error{
				Code: codes.DataLoss, Message: "the server ended a watch that has no end",
			}}}
		}
		if err != nil {
			return false, errorOf(err)
		}
		c.connection.answered()
		pauses.answered()
		change, isNew := view.change(response)
		if !isNew {
			continue
		}
		pauses.progress()
		if !yield(change, nil) {
			return true, nil
		}
	}
}

func isBroken(failure error) bool {
	var broken StreamBroken
	return errors.As(failure, &broken)
}

// Claim keeps others from deciding a call for a while. Claiming one's own claim again extends it. The call is named
// by its pending call id. Errors: [PendingCallClaimed] for another's.
func (c *InboxClient) Claim(ctx context.Context, of Call, options ClaimOptions) (*PendingCall, error) {
	id, err := pendingCallIDOf(of)
	if err != nil {
		return nil, err
	}
	response, err := plain(ctx, c.connection, c.connection.inbox.ClaimPendingCall, &pb.ClaimPendingCallRequest{
		PendingCallId: id, Ttl: durationOf(options.TTL), RequestId: orNewID(options.RequestID),
	})
	if err != nil {
		return nil, err
	}
	return pendingCallOf(response.PendingCall), nil
}

// Release gives a claim back. Errors: [PendingCallClaimed] for another's.
func (c *InboxClient) Release(ctx context.Context, of Call, options ClaimOptions) (*PendingCall, error) {
	id, err := pendingCallIDOf(of)
	if err != nil {
		return nil, err
	}
	response, err := plain(ctx, c.connection, c.connection.inbox.ReleasePendingCall, &pb.ReleasePendingCallRequest{
		PendingCallId: id, RequestId: orNewID(options.RequestID),
	})
	if err != nil {
		return nil, err
	}
	return pendingCallOf(response.PendingCall), nil
}

func pendingCallIDOf(of Call) (string, error) {
	if of != nil {
		if ref, _, _ := of.reference(); ref.PendingCallId != "" {
			return ref.PendingCallId, nil
		}
	}
	return "", invalid("pending_call_id", errors.New("name the call by its pending call id"))
}

// Decisions gives all decisions that fit, newest first; it asks for page after page.
func (c *InboxClient) Decisions(ctx context.Context, filter DecisionFilter) iter.Seq2[*Decision, error] {
	return allItems(func(token string) (Page[*Decision], error) { return c.DecisionsPage(ctx, filter, token) })
}

// DecisionsPage is one page of [InboxClient.Decisions]. Errors: [PageTokenInvalid].
func (c *InboxClient) DecisionsPage(ctx context.Context, filter DecisionFilter, pageToken string) (Page[*Decision], error) {
	response, err := plain(ctx, c.connection, c.connection.inbox.ListDecisions, &pb.ListDecisionsRequest{
		PageSize:      pageSize(filter.PageSize),
		PageToken:     pageToken,
		RunId:         filter.RunID,
		PendingCallId: filter.PendingCallID,
		Principal:     filter.Principal,
	})
	if err != nil {
		return Page[*Decision]{}, err
	}
	return Page[*Decision]{mapped(response.Decisions, decisionOf), response.NextPageToken}, nil
}
