package entracte

import (
	"context"
	"iter"

	pb "entracte.dev/go/entracte/v1"
)

// RunsClient looks at the runs of a server, follows them and ends them: [Client.Runs].
type RunsClient struct{ connection *connection }

// RunFilter is which runs are listed; what is empty does not filter.
type RunFilter struct {
	// States are those of the runs.
	States []RunState
	// AgentID is that of the runs' agent.
	AgentID string
	// ThreadID is that of the runs' thread.
	ThreadID string
	// IncludeChildren tells that runs of sub-agents are listed, too.
	IncludeChildren bool
	// PageSize is how many runs one request asks for, 1 to 1000. Default 50.
	PageSize int
}

// CancelOptions say how a run is cancelled.
type CancelOptions struct {
	// Reason is shown in the [AbortChunk].
	Reason string
	// Wait waits until the run has ended, without the client's timeout.
	Wait bool
	// RequestID makes the request safe to repeat from elsewhere, too.
	RequestID string
}

// DeleteOptions say how something is deleted.
type DeleteOptions struct {
	// Force deletes a parked run, too; of a thread, it cancels the runs that have it or wait for it.
	Force bool
	// RequestID makes the request safe to repeat from elsewhere, too.
	RequestID string
}

// Get reads a run with its Result: final for one that has ended, else what there is so far.
//
// Errors: [RunNotFound], and [ResultTooLarge] for a result beyond 16 MiB: read the run with
// [RunsClient.GetWithoutResult] and its chunks with [RunsClient.Watch].
func (c *RunsClient) Get(ctx context.Context, runID string) (*Run, error) {
	return c.get(ctx, &pb.GetRunRequest{RunId: runID})
}

// GetWithoutResult reads a run without what it has come to, which may be large. Errors: [RunNotFound].
func (c *RunsClient) GetWithoutResult(ctx context.Context, runID string) (*Run, error) {
	return c.get(ctx, &pb.GetRunRequest{RunId: runID, OmitResult: true})
}

func (c *RunsClient) get(ctx context.Context, request *pb.GetRunRequest) (*Run, error) {
	response, err := plain(ctx, c.connection, c.connection.runs.GetRun, request)
	if err != nil {
		return nil, err
	}
	return runOf(response.Run, response.Result), nil
}

// List gives all runs that fit, newest first, without their results; it asks for page after page.
func (c *RunsClient) List(ctx context.Context, filter RunFilter) iter.Seq2[*Run, error] {
	return allItems(func(token string) (Page[*Run], error) { return c.ListPage(ctx, filter, token) })
}

// ListPage is one page of [RunsClient.List]: the first, or the one that a NextPageToken names. Errors:
// [PageTokenInvalid] for a token of another list or of other filters.
func (c *RunsClient) ListPage(ctx context.Context, filter RunFilter, pageToken string) (Page[*Run], error) {
	request := &pb.ListRunsRequest{
		PageSize:        pageSize(filter.PageSize),
		PageToken:       pageToken,
		AgentId:         filter.AgentID,
		ThreadId:        filter.ThreadID,
		IncludeChildren: filter.IncludeChildren,
	}
	for _, state := range filter.States {
		number, err := numberOf[pb.RunState](pb.RunState_value, "RUN_STATE_", state, "a run's state")
		if err != nil {
			return Page[*Run]{}, invalid("states", err)
		}
		request.States = append(request.States, number)
	}
	response, err := plain(ctx, c.connection, c.connection.runs.ListRuns, request)
	if err != nil {
		return Page[*Run]{}, err
	}
	runs := mapped(response.Runs, func(run *pb.Run) *Run { return runOf(run, nil) })
	return Page[*Run]{runs, response.NextPageToken}, nil
}

// Watch follows a run from any position: what is stored after chunk `after` (0: from the first), then what happens.
// It ends where the run is parked or has ended. An error is the last thing it gives.
//
// Errors: [RunNotFound], [SequenceTrimmed], [SequenceAhead]. For what the chunks add up to see
// [RunsClient.WatchRun].
func (c *RunsClient) Watch(ctx context.Context, runID string, after uint64, options ...WatchOption) iter.Seq2[Chunk, error] {
	return c.WatchRun(ctx, runID, after, options...).Chunks()
}

// WatchRun is [RunsClient.Watch] as a stream that knows what its chunks add up to.
func (c *RunsClient) WatchRun(ctx context.Context, runID string, after uint64, options ...WatchOption) *RunStream {
	settings := &watching{}
	for _, option := range options {
		option.watch(settings)
	}
	return newRunStream(ctx, c.connection, runID, &settings.following, func(context.Context) (beginning, error) {
		return beginning{follower: &follower{
			connection:    c.connection,
			runID:         runID,
			position:      after,
			untilFinished: settings.untilFinished,
			atRest:        after > 0,
		}}, nil
	})
}

// FollowUps are what is done about a run after its end, its scores and the title of its thread for example. It
// waits until the run has ended and all of it is settled; that may take minutes, so give the context a deadline.
// As it stands now, they are in [Run.FollowUps]. Errors: [RunNotFound].
func (c *RunsClient) FollowUps(ctx context.Context, runID string) ([]FollowUp, error) {
	run, err := c.GetWithoutResult(ctx, runID)
	if err != nil {
		return nil, err
	}
	for _, err := range late(ctx, c.connection, runID, run.LastSequence) {
		if err != nil {
			return nil, err
		}
	}
	run, err = c.GetWithoutResult(ctx, runID)
	if err != nil {
		return nil, err
	}
	return run.FollowUps, nil
}

// Cancel cancels a run, whatever it is doing: model calls and tools are cut off, waiting calls are settled as
// cancelled. One that had ended before stays as it is. Errors: [RunNotFound], [RunOfSubAgent].
func (c *RunsClient) Cancel(ctx context.Context, runID string, options CancelOptions) (*Run, error) {
	request := &pb.CancelRunRequest{
		RunId: runID, Reason: options.Reason, Wait: options.Wait, RequestId: orNewID(options.RequestID),
	}
	if !options.Wait {
		bounded, cancel := c.connection.bounded(ctx)
		defer cancel()
		ctx = bounded
	}
	response, err := call(ctx, c.connection, c.connection.runs.CancelRun, request, "")
	if err != nil {
		return nil, err
	}
	return runOf(response.Run, nil), nil
}

// Delete deletes all that is stored of a run that has ended, or of a parked one with Force. Errors: [RunNotFound],
// [RunNotFinished], [RunOfSubAgent].
func (c *RunsClient) Delete(ctx context.Context, runID string, options DeleteOptions) error {
	_, err := plain(ctx, c.connection, c.connection.runs.DeleteRun, &pb.DeleteRunRequest{
		RunId: runID, Force: options.Force, RequestId: orNewID(options.RequestID),
	})
	return err
}

// pageSize is a page's size as the contract has it; too large a one is taken as the largest by the server.
func pageSize(size int) int32 { return int32(max(min(size, 1<<30), -1)) }
