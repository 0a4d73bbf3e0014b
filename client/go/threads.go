package entracte

import (
	"context"
	"iter"

	pb "entracte.dev/go/entracte/v1"
)

// ThreadsClient makes, reads, changes and deletes conversations: [Client.Threads]. Runs make threads, too, with
// [WithMemory].
type ThreadsClient struct{ connection *connection }

// NewThread is what a thread is made with.
type NewThread struct {
	// ThreadID is made by the server where it is empty.
	ThreadID string
	Title    string
	// Metadata is anything to keep beside it, an object.
	Metadata any
	// RequestID makes the request safe to repeat from elsewhere, too.
	RequestID string
}

// ThreadUpdate is what changes of a thread; what is nil stays as it is.
type ThreadUpdate struct {
	// Title takes the old one away where it is empty.
	Title *string
	// Metadata is an object in place of the old one.
	Metadata any
	// RequestID makes the request safe to repeat from elsewhere, too.
	RequestID string
}

// ThreadFilter is which threads are listed; what is empty does not filter.
type ThreadFilter struct {
	ResourceID string
	// PageSize is how many threads one request asks for, 1 to 1000. Default 50.
	PageSize int
}

// ThreadMessageFilter is which messages of a thread are listed, and how.
type ThreadMessageFilter struct {
	// Roles are user, assistant and system. None: all.
	Roles []Role
	RunID string
	// NewestFirst gives the newest first.
	NewestFirst bool
	// PageSize is how many messages one request asks for, 1 to 1000. Default 50. A page has fewer where they are
	// large.
	PageSize int
}

// MemoryOwner is whose working memory is meant: [OfThread] or [OfResource].
type MemoryOwner struct{ threadID, resourceID string }

// OfThread is a thread's own working memory.
func OfThread(id string) MemoryOwner { return MemoryOwner{threadID: id} }

// OfResource is the working memory of a resource, in all its threads.
func OfResource(id string) MemoryOwner { return MemoryOwner{resourceID: id} }

// WorkingMemoryUpdate is what a working memory is replaced with.
type WorkingMemoryUpdate struct {
	// Content is markdown, or the text of a JSON object; empty: nothing.
	Content string
	// ExpectedVersion is the version that was read (0: there was none): only if it has not changed since. Nil:
	// whatever it is.
	ExpectedVersion *uint64
	// RequestID makes the request safe to repeat from elsewhere, too.
	RequestID string
}

// Create makes a thread of a resource, for example a user's id. Errors: [ThreadExists].
func (c *ThreadsClient) Create(ctx context.Context, resourceID string, thread NewThread) (*Thread, error) {
	metadata, err := toOptionalJSON(thread.Metadata)
	if err != nil {
		return nil, invalid("metadata", err)
	}
	response, err := plain(ctx, c.connection, c.connection.threads.CreateThread, &pb.CreateThreadRequest{
		ThreadId:   thread.ThreadID,
		ResourceId: resourceID,
		Title:      thread.Title,
		Metadata:   metadata,
		RequestId:  orNewID(thread.RequestID),
	})
	if err != nil {
		return nil, err
	}
	return threadOf(response.Thread), nil
}

// Get reads a thread. Errors: [ThreadNotFound].
func (c *ThreadsClient) Get(ctx context.Context, threadID string) (*Thread, error) {
	response, err := plain(ctx, c.connection, c.connection.threads.GetThread, &pb.GetThreadRequest{ThreadId: threadID})
	if err != nil {
		return nil, err
	}
	return threadOf(response.Thread), nil
}

// List gives all threads that fit, newest first; it asks for page after page.
func (c *ThreadsClient) List(ctx context.Context, filter ThreadFilter) iter.Seq2[*Thread, error] {
	return allItems(func(token string) (Page[*Thread], error) { return c.ListPage(ctx, filter, token) })
}

// ListPage is one page of [ThreadsClient.List]: the first, or the one that a NextPageToken names. Errors:
// [PageTokenInvalid].
func (c *ThreadsClient) ListPage(ctx context.Context, filter ThreadFilter, pageToken string) (Page[*Thread], error) {
	response, err := plain(ctx, c.connection, c.connection.threads.ListThreads, &pb.ListThreadsRequest{
		PageSize: pageSize(filter.PageSize), PageToken: pageToken, ResourceId: filter.ResourceID,
	})
	if err != nil {
		return Page[*Thread]{}, err
	}
	return Page[*Thread]{mapped(response.Threads, threadOf), response.NextPageToken}, nil
}

// Update changes the title or the metadata. Errors: [ThreadNotFound].
func (c *ThreadsClient) Update(ctx context.Context, threadID string, update ThreadUpdate) (*Thread, error) {
	metadata, err := toOptionalJSON(update.Metadata)
	if err != nil {
		return nil, invalid("metadata", err)
	}
	response, err := plain(ctx, c.connection, c.connection.threads.UpdateThread, &pb.UpdateThreadRequest{
		ThreadId: threadID, Title: update.Title, Metadata: metadata, RequestId: orNewID(update.RequestID),
	})
	if err != nil {
		return nil, err
	}
	return threadOf(response.Thread), nil
}

// Delete deletes a thread with its messages and its runs. While a run has it or waits for it, only with Force,
// which cancels these runs: their ids are returned. Errors: [ThreadNotFound], [ThreadBusy], [ThreadParked].
func (c *ThreadsClient) Delete(ctx context.Context, threadID string, options DeleteOptions) (cancelled []string, err error) {
	response, err := plain(ctx, c.connection, c.connection.threads.DeleteThread, &pb.DeleteThreadRequest{
		ThreadId: threadID, Force: options.Force, RequestId: orNewID(options.RequestID),
	})
	if err != nil {
		return nil, err
	}
	return response.CancelledRunIds, nil
}

// Messages gives all messages of a thread that fit, in its order or from the newest on; it asks for page after
// page. Errors: [ThreadNotFound].
func (c *ThreadsClient) Messages(ctx context.Context, threadID string, filter ThreadMessageFilter) iter.Seq2[*ThreadMessage, error] {
	return allItems(func(token string) (Page[*ThreadMessage], error) {
		return c.MessagesPage(ctx, threadID, filter, token)
	})
}

// MessagesPage is one page of [ThreadsClient.Messages]. Errors: [ThreadNotFound], [PageTokenInvalid].
func (c *ThreadsClient) MessagesPage(
	ctx context.Context, threadID string, filter ThreadMessageFilter, pageToken string,
) (Page[*ThreadMessage], error) {
	request := &pb.ListThreadMessagesRequest{
		ThreadId:    threadID,
		PageSize:    pageSize(filter.PageSize),
		PageToken:   pageToken,
		RunId:       filter.RunID,
		NewestFirst: filter.NewestFirst,
	}
	for _, role := range filter.Roles {
		number, err := numberOf[pb.Role](pb.Role_value, "ROLE_", role, "a role")
		if err != nil {
			return Page[*ThreadMessage]{}, invalid("roles", err)
		}
		request.Roles = append(request.Roles, number)
	}
	response, err := plain(ctx, c.connection, c.connection.threads.ListThreadMessages, request)
	if err != nil {
		return Page[*ThreadMessage]{}, err
	}
	return Page[*ThreadMessage]{mapped(response.Messages, threadMessageOf), response.NextPageToken}, nil
}

// WorkingMemory is what agents noted down. Errors: [ThreadNotFound].
func (c *ThreadsClient) WorkingMemory(ctx context.Context, of MemoryOwner) (*WorkingMemory, error) {
	request := &pb.GetWorkingMemoryRequest{}
	if of.threadID != "" {
		request.Owner = &pb.GetWorkingMemoryRequest_ThreadId{ThreadId: of.threadID}
	} else if of.resourceID != "" {
		request.Owner = &pb.GetWorkingMemoryRequest_ResourceId{ResourceId: of.resourceID}
	}
	response, err := plain(ctx, c.connection, c.connection.threads.GetWorkingMemory, request)
	if err != nil {
		return nil, err
	}
	return workingMemoryOf(response.WorkingMemory), nil
}

// UpdateWorkingMemory replaces what agents noted down. Errors: [ThreadNotFound], [WorkingMemoryChanged].
func (c *ThreadsClient) UpdateWorkingMemory(
	ctx context.Context, of MemoryOwner, update WorkingMemoryUpdate,
) (*WorkingMemory, error) {
	request := &pb.UpdateWorkingMemoryRequest{
		Content: update.Content, ExpectedVersion: update.ExpectedVersion, RequestId: orNewID(update.RequestID),
	}
	if of.threadID != "" {
		request.Owner = &pb.UpdateWorkingMemoryRequest_ThreadId{ThreadId: of.threadID}
	} else if of.resourceID != "" {
		request.Owner = &pb.UpdateWorkingMemoryRequest_ResourceId{ResourceId: of.resourceID}
	}
	response, err := plain(ctx, c.connection, c.connection.threads.UpdateWorkingMemory, request)
	if err != nil {
		return nil, err
	}
	return workingMemoryOf(response.WorkingMemory), nil
}
