package entracte

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	pb "entracte.dev/go/entracte/v1"
)

// titleWait is how long the end of a stream waits for a title that it is to tell of.
const titleWait = 30 * time.Second

// beginning is how a stream began: what follows the run, and the decision it began with, if it did.
type beginning struct {
	follower *follower
	decision *Decision
}

// RunStream is the chunks of a run, from where it starts or goes on to where it parks or ends.
//
//	stream := agent.StreamRun(ctx, entracte.Text("Hello"))
//	for chunk, err := range stream.Chunks() {
//		...
//	}
//	result, err := stream.Result()
//
// Nothing is sent before the first chunk is asked for. A broken connection, a stopping server or a reader that was
// too slow are no end: the stream attaches again after the last chunk, so that each chunk comes once and none is
// left out. After a broken attempt of a step the model's answer starts over, with a [StepStartChunk] of a higher
// Attempt; [RunStream.Fold] drops what it made void.
//
// Leaving the loop, or cancelling the context, stops following and leaves the run alone. Another loop, or
// [RunStream.Result], goes on after the last chunk that was handed out. A stream is for one goroutine at a time.
type RunStream struct {
	ctx        context.Context
	connection *connection
	begin      func(context.Context) (beginning, error)
	runID      string
	callbacks  Callbacks
	observer   observer
	tools      map[string]ClientTool

	reading   atomic.Bool
	beginning *beginning
	fold      Fold
	parked    *FinishChunk
	announced map[string]JSON // arguments of client tools' calls, by pending call id
	answered  map[string]bool
	ended     bool
	failed    bool
	result    *GenerateResult

	mu          sync.Mutex
	submissions map[string]*pb.SubmitToolResultRequest
}

func newRunStream(
	ctx context.Context, c *connection, runID string, f *following, begin func(context.Context) (beginning, error),
) *RunStream {
	stream := &RunStream{
		ctx:         ctx,
		connection:  c,
		begin:       begin,
		runID:       runID,
		callbacks:   f.callbacks,
		observer:    observer{log: c.log},
		tools:       map[string]ClientTool{},
		announced:   map[string]JSON{},
		answered:    map[string]bool{},
		submissions: map[string]*pb.SubmitToolResultRequest{},
	}
	for _, tool := range f.tools {
		if tool.Func != nil {
			stream.tools[tool.Name] = tool
		}
	}
	return stream
}

// RunID is the run's id. It is known from the start, except where only the server knows it: then it is empty until
// a decision by a bare [PendingCallID] was made, or until the first chunk of a run that was started with
// [WithRequestID] and without [WithRunID].
func (s *RunStream) RunID() string {
	if s.beginning != nil {
		return s.beginning.follower.runID
	}
	return s.runID
}

// Position is the sequence of the last chunk that was handed out, to follow the run from elsewhere.
func (s *RunStream) Position() uint64 {
	if s.beginning != nil {
		return s.beginning.follower.position
	}
	return 0
}

// Fold is what the chunks so far add up to.
func (s *RunStream) Fold() *Fold { return &s.fold }

// Text is the text so far, void attempts and drafts left out.
func (s *RunStream) Text() string { return s.fold.Text() }

// Decision is the decision this stream began with, once it was made; nil for other streams.
func (s *RunStream) Decision() *Decision {
	if s.beginning != nil {
		return s.beginning.decision
	}
	return nil
}

// Commit makes the decision this stream begins with and returns at once, without following the run; a decision
// that was made is returned as it is. It fails for other streams.
func (s *RunStream) Commit() (*Decision, error) {
	if err := s.begun(); err != nil {
		return nil, err
	}
	if s.beginning.decision == nil {
		return nil, errors.New("entracte: this stream does not begin with a decision")
	}
	return s.beginning.decision, nil
}

// Texts are the pieces of the answer's text as they come, in place of the chunks.
func (s *RunStream) Texts() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for chunk, err := range s.Chunks() {
			if err != nil {
				yield("", err)
				return
			}
			delta, is := chunk.(*TextDeltaChunk)
			if is && len(delta.AgentPath) == 0 && !yield(delta.Text, nil) {
				return
			}
		}
	}
}

// Result is what the run has come to, after reading the stream to its end. It fails with what reading fails with,
// and with [ResultTooLarge] for a result beyond 16 MiB.
func (s *RunStream) Result() (*GenerateResult, error) {
	if !s.ended {
		for _, err := range s.Chunks() {
			if err != nil {
				return nil, err
			}
		}
	}
	return s.readResult()
}

// Chunks are the chunks from the last one that was handed out on. An error is the last thing it gives, with a nil
// chunk: what the server refused, [DeadlineExceeded] or a cancellation by the context, [Unavailable] when no server
// could be reached for too long, [StreamError] for a stream that is not what the contract says.
func (s *RunStream) Chunks() iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		if !s.reading.CompareAndSwap(false, true) {
			yield(nil, errors.New("entracte: the stream is being read already"))
			return
		}
		defer s.reading.Store(false)
		defer s.observer.drain()
		left, err := s.read(yield)
		if err != nil {
			if !errors.Is(err, context.Canceled) || s.ctx.Err() == nil { // the caller knows that it cancelled
				tell(&s.observer, s.callbacks.OnError, err)
			}
			yield(nil, err)
		} else if !left {
			s.ended = true
		}
	}
}

// read hands out chunks and answers calls of client tools until the run parks for something else or ends. left
// tells that the loop was left.
func (s *RunStream) read(yield func(Chunk, error) bool) (left bool, err error) {
	if err := s.begun(); err != nil {
		return false, err
	}
	follower := s.beginning.follower
	for {
		for chunk, err := range follower.chunks(s.ctx) {
			if err != nil {
				return false, err
			}
			s.takeIn(chunk)
			if !yield(chunk, nil) {
				return true, nil
			}
		}
		calls := s.callsToAnswer()
		if len(calls) == 0 {
			break
		}
		fresh, err := s.answerAll(calls)
		if err != nil {
			return false, err
		}
		if fresh {
			follower.atRest = false // more must come
		}
	}
	if follower.over && !s.failed {
		return false, s.tellEnd()
	}
	return false, nil
}

// tellEnd tells the callbacks of a run's end.
func (s *RunStream) tellEnd() error {
	if s.callbacks.OnFinish != nil {
		result, err := s.readResult()
		if err != nil {
			return err
		}
		tell(&s.observer, s.callbacks.OnFinish, result)
	}
	if s.callbacks.OnTitleGenerated != nil {
		// When it cannot be heard of in time, it is not told: the run itself has been read to its end.
		ctx, cancel := context.WithTimeout(s.ctx, titleWait)
		defer cancel()
		for job, err := range late(ctx, s.connection, s.RunID(), s.Position()) {
			if err != nil {
				return nil
			}
			if job.Title != nil {
				tell(&s.observer, s.callbacks.OnTitleGenerated, *job.Title)
				return nil
			}
		}
	}
	return nil
}

func (s *RunStream) begun() error {
	if s.beginning != nil {
		return nil
	}
	made, err := s.begin(s.ctx)
	if err == nil {
		s.beginning = &made
	}
	return err
}

func (s *RunStream) takeIn(chunk Chunk) {
	tell(&s.observer, s.callbacks.OnChunk, chunk)
	if step := s.fold.Add(chunk); step != nil {
		tell(&s.observer, s.callbacks.OnStepFinish, step)
	}
	if waiting, is := chunk.(*ToolCallSuspendedChunk); is && waiting.Kind == KindClientTool {
		s.announced[waiting.PendingCallID] = waiting.Args
	}
	if len(chunk.Header().AgentPath) > 0 {
		return
	}
	s.parked = nil
	switch chunk := chunk.(type) {
	case *FinishChunk:
		s.parked = chunk
	case *ErrorChunk:
		s.failed = true
		tell(&s.observer, s.callbacks.OnError, error(&chunk.Failure))
	case *AbortChunk:
		s.failed = true
		tell(&s.observer, s.callbacks.OnAbort, chunk)
	}
}

func (s *RunStream) callsToAnswer() []OpenCall {
	if s.parked == nil {
		return nil
	}
	var calls []OpenCall
	for _, call := range s.parked.OpenCalls {
		if _, has := s.tools[call.ToolName]; has && call.Kind == KindClientTool && !s.answered[call.PendingCallID] {
			calls = append(calls, call)
		}
	}
	return calls
}

// answerAll runs the functions that are called, all at the same time, and hands in what they return as they do.
// fresh is false when all calls had been settled otherwise. When the context is done, functions that do not look at
// it are left to themselves.
func (s *RunStream) answerAll(calls []OpenCall) (fresh bool, err error) {
	type answer struct {
		id    string
		fresh bool
		err   error
	}
	answers := make(chan answer, len(calls))
	for _, call := range calls {
		args, announced := s.announced[call.PendingCallID]
		go func() {
			fresh, err := s.answer(call, args, announced)
			answers <- answer{call.PendingCallID, fresh, err}
		}()
	}
	for range calls {
		select {
		case <-s.ctx.Done():
			return false, contextError(s.ctx)
		case given := <-answers:
			if given.err != nil && err == nil {
				err = given.err
			} else if given.err == nil {
				s.answered[given.id] = true
				fresh = fresh || given.fresh
			}
		}
	}
	return fresh, err
}

// answer runs one function and hands in what it returns. fresh is false when the call had been settled otherwise.
func (s *RunStream) answer(of OpenCall, args JSON, announced bool) (fresh bool, err error) {
	// What a function returned is kept, so that it runs once even if handing that in fails at first.
	s.mu.Lock()
	request := s.submissions[of.PendingCallID]
	s.mu.Unlock()
	if request == nil {
		if !announced {
			response, err := plain(s.ctx, s.connection, s.connection.inbox.GetPendingCall,
				&pb.GetPendingCallRequest{PendingCallId: of.PendingCallID})
			if err != nil {
				return false, err
			}
			args = jsonOf(response.PendingCall.GetArgs())
		}
		request = execute(s.ctx, s.connection.log, s.tools[of.ToolName], of.PendingCallID, args)
		s.mu.Lock()
		s.submissions[of.PendingCallID] = request
		s.mu.Unlock()
	}
	_, err = plain(s.ctx, s.connection, s.connection.agents.SubmitToolResult, request)
	var decided PendingCallAlreadyDecided
	var expired PendingCallExpired
	var finished RunFinished
	if errors.As(err, &decided) || errors.As(err, &expired) || errors.As(err, &finished) {
		return false, nil
	}
	return err == nil, err
}

func (s *RunStream) readResult() (*GenerateResult, error) {
	if s.result != nil {
		return s.result, nil
	}
	response, err := plain(s.ctx, s.connection, s.connection.runs.GetRun, &pb.GetRunRequest{RunId: s.RunID()})
	if err != nil {
		return nil, err
	}
	if response.Result == nil {
		response.Result = &pb.GenerateResult{RunId: s.RunID()}
	}
	s.result = resultOf(response.Result)
	s.result.AutoResumeError = s.beginning.follower.autoResumeError
	return s.result, nil
}
