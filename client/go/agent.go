package entracte

import (
	"context"
	"iter"

	"google.golang.org/grpc"

	pb "entracte.dev/go/entracte/v1"
)

// Agent is one agent of a server; [Client.Agent] makes it, without asking whether it exists. It may be used from
// any number of goroutines.
type Agent struct {
	id         string
	connection *connection
}

// ID is the agent's id.
func (a *Agent) ID() string { return a.id }

// Generate starts a run and waits until it parks or ends.
//
// Client tools that have functions are executed as the run calls for them, so that it parks only for something
// else. A run that failed is a result, too. When the connection breaks, the request is made again and joins the
// run it had started.
//
// Errors: [AgentNotFound], [RunAlreadyExists], [RequestInvalid], [OptionUnsupported], [ResultTooLarge], the
// thread's ([ThreadBusy], [ThreadParked] ...), [DeadlineExceeded].
func (a *Agent) Generate(ctx context.Context, input Input, options ...GenerateOption) (*GenerateResult, error) {
	g := newGeneration(options)
	if g.needsStream() {
		return a.started(ctx, input, g).Result()
	}
	messages, err := g.input(input)
	if err != nil {
		return nil, err
	}
	request := &pb.GenerateRequest{AgentId: a.id, Messages: messages, Options: &g.options, RequestId: g.requestID}
	response, err := call(ctx, a.connection, a.connection.agents.Generate, request, g.traceparent)
	if err != nil {
		return nil, err
	}
	return resultOf(response.Result), nil
}

// Stream starts a run and gives its chunks, until it parks or ends; it starts when the loop does. An error is the
// last thing it gives, with a nil chunk. Leaving the loop stops following and leaves the run alone.
//
// For what the chunks add up to, for the run's id and its result, see [Agent.StreamRun].
func (a *Agent) Stream(ctx context.Context, input Input, options ...GenerateOption) iter.Seq2[Chunk, error] {
	return a.StreamRun(ctx, input, options...).Chunks()
}

// StreamRun is a new run as the stream of its chunks; it starts when the first chunk is asked for. The errors are
// those of [Agent.Generate].
func (a *Agent) StreamRun(ctx context.Context, input Input, options ...GenerateOption) *RunStream {
	return a.started(ctx, input, newGeneration(options))
}

// Resume answers a tool that asked something, and waits until the run next parks or ends.
//
// Any JSON value is an answer: nil is JSON null. It must fit the call's ResumeSchema, else [ResumeDataInvalid],
// and the call still waits.
//
// Errors of all decisions: [PendingCallNotFound], [PendingCallAlreadyDecided], [PendingCallExpired],
// [PendingCallClaimed], [PendingCallAmbiguous], [VerbMismatch], [AgentUnavailable], [ToolUnavailable].
func (a *Agent) Resume(ctx context.Context, of Call, answer any, options ...DecisionOption) (*GenerateResult, error) {
	return a.decided(ctx, a.answer(of, answer, options))
}

// ResumeStream is [Agent.Resume] as the stream of what comes of it.
func (a *Agent) ResumeStream(ctx context.Context, of Call, answer any, options ...DecisionOption) *RunStream {
	return a.following(ctx, a.answer(of, answer, options))
}

// Approve approves a call, and waits until the run next parks or ends.
//
// The digest of what the call showed is sent along: should the server's call differ from it,
// [ArgsDigestMismatch]. [WithEditedArgs] replaces the arguments.
func (a *Agent) Approve(ctx context.Context, of Call, options ...DecisionOption) (*GenerateResult, error) {
	return a.decided(ctx, a.approval(of, options))
}

// ApproveStream is [Agent.Approve] as the stream of what comes of it.
func (a *Agent) ApproveStream(ctx context.Context, of Call, options ...DecisionOption) *RunStream {
	return a.following(ctx, a.approval(of, options))
}

// Decline declines a call of any kind, and waits until the run next parks or ends. The tool is not entered; the
// model is told the reason (empty: a standard sentence), and what [WithReasonData] adds.
func (a *Agent) Decline(ctx context.Context, of Call, reason string, options ...DecisionOption) (*GenerateResult, error) {
	return a.decided(ctx, a.refusal(of, reason, options))
}

// DeclineStream is [Agent.Decline] as the stream of what comes of it.
func (a *Agent) DeclineStream(ctx context.Context, of Call, reason string, options ...DecisionOption) *RunStream {
	return a.following(ctx, a.refusal(of, reason, options))
}

// SubmitToolResult hands in what a client tool returned, or what a call of kind recovery had come to, and waits
// until the run next parks or ends. An error in place of a result: it failed, and the model is told why.
func (a *Agent) SubmitToolResult(ctx context.Context, of Call, result any, options ...DecisionOption) (*GenerateResult, error) {
	return a.decided(ctx, a.submission(of, result, options))
}

// SubmitToolResultStream is [Agent.SubmitToolResult] as the stream of what comes of it.
func (a *Agent) SubmitToolResultStream(ctx context.Context, of Call, result any, options ...DecisionOption) *RunStream {
	return a.following(ctx, a.submission(of, result, options))
}

func newGeneration(options []GenerateOption) *generation {
	g := &generation{}
	for _, option := range options {
		option.generate(g)
	}
	if g.options.RunId == "" && g.requestID == "" {
		// With a request id of the caller's, the same request must have the same body each time.
		g.options.RunId = newID()
	}
	if g.requestID == "" {
		g.requestID = newID()
	}
	return g
}

// input is what the run is given, once nothing is wrong with the options.
func (g *generation) input(input Input) ([]*pb.Message, error) {
	if g.err != nil {
		return nil, g.err
	}
	messages, err := toMessages(input, RoleUser)
	if err != nil {
		return nil, invalid("messages", err)
	}
	return messages, nil
}

// needsStream tells whether something is to happen here while the run goes on.
func (f *following) needsStream() bool {
	for _, tool := range f.tools {
		if tool.Func != nil {
			return true
		}
	}
	return f.callbacks.any()
}

func (a *Agent) started(ctx context.Context, input Input, g *generation) *RunStream {
	connection := a.connection
	return newRunStream(ctx, connection, g.options.RunId, &g.following, func(ctx context.Context) (beginning, error) {
		messages, err := g.input(input)
		if err != nil {
			return beginning{}, err
		}
		request := &pb.StreamRequest{AgentId: a.id, Messages: messages, Options: &g.options, RequestId: g.requestID}
		return beginning{follower: &follower{
			connection: connection,
			runID:      g.options.RunId,
			request:    request,
			start: func(ctx context.Context, options ...grpc.CallOption) (func() (chunkResponse, error), error) {
				return receiver(connection.agents.Stream(connection.outgoing(ctx, g.traceparent), request, options...))
			},
		}}, nil
	})
}

func (a *Agent) decided(ctx context.Context, d *decision) (*GenerateResult, error) {
	if d.err != nil {
		return nil, d.err
	}
	if d.needsStream() {
		return a.following(ctx, d).Result()
	}
	response, err := d.make(ctx, true)
	if err != nil {
		return nil, err
	}
	return resultOf(response.GetResult()), nil
}

// following begins a stream with a decision: makes it, and follows the run from there.
func (a *Agent) following(ctx context.Context, d *decision) *RunStream {
	connection := a.connection
	return newRunStream(ctx, connection, d.runID, &d.deciding.following, func(ctx context.Context) (beginning, error) {
		if d.err != nil {
			return beginning{}, d.err
		}
		response, err := d.atOnce(ctx, connection)
		if err != nil {
			return beginning{}, err
		}
		made := decisionOf(response.GetDecision())
		following := &follower{
			connection: connection,
			runID:      response.GetRun().GetRunId(),
			position:   response.GetRun().GetLastSequence(),
		}
		if response.GetReplayed() {
			// The answer to the first request was lost, and the run may have gone on since: what came of the
			// decision begins where the decision stands in the log.
			following.position = 0
			following.skip = func(chunk Chunk) bool {
				resolved, is := chunk.(*ToolCallResolvedChunk)
				return !is || resolved.DecisionID != made.DecisionID
			}
		}
		return beginning{following, made}, nil
	})
}

// atOnce makes the decision without waiting for what comes of it, within the client's timeout at most.
func (d *decision) atOnce(ctx context.Context, connection *connection) (outcome, error) {
	if connection.timeout > 0 {
		bounded, cancel := context.WithTimeout(ctx, connection.timeout)
		defer cancel()
		ctx = bounded
	}
	return d.make(ctx, false)
}
