package entracte

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pb "entracte.dev/go/entracte/v1"
)

// chunkResponse is a message of the RPCs that stream chunks.
type chunkResponse interface{ GetChunks() []*pb.Chunk }

// receiver is how the messages of an opened stream are read.
func receiver[Response chunkResponse](stream interface{ Recv() (Response, error) }, err error) (func() (chunkResponse, error), error) {
	if err != nil {
		return nil, err
	}
	return func() (chunkResponse, error) { return stream.Recv() }, nil
}

// follower reads a run's chunks in order, each once, from position on, over any number of broken streams.
//
// position is the sequence of the last chunk handed out. A stream that breaks is opened again after it, and so is
// the next loop after one that was left. start opens the first stream and is used until a chunk has arrived; it
// must be safe to repeat. atRest tells that nothing need come after position. Chunks are left out as long as skip
// holds.
type follower struct {
	connection    *connection
	runID         string
	position      uint64
	untilFinished bool
	request       *pb.StreamRequest
	start         func(context.Context, ...grpc.CallOption) (func() (chunkResponse, error), error)
	atRest        bool
	skip          func(Chunk) bool
	// autoResumeError is why the message that began the stream did not answer the parked run that is followed.
	autoResumeError string
	// over tells that the run has ended and its last chunk was handed out.
	over bool
}

// chunks are the chunks from here to where the run parks or ends.
func (f *follower) chunks(ctx context.Context) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		pauses := f.connection.backoff()
		for !f.over {
			pauses.begin()
			left, failure := f.read(ctx, pauses, yield)
			if left || failure == nil && (f.over || f.atRest) {
				return
			}
			if failure == nil {
				failure = StreamBroken{StreamError{&Error{
					Code:     codes.DataLoss,
					Message:  "the stream ended before its finish chunk",
					Metadata: map[string]string{"run_id": f.runID, "sequence": number(f.position)},
				}}}
			} else if ctx.Err() != nil {
				yield(nil, contextError(ctx))
				return
			} else if !pauses.mayTryAgain(failure) {
				yield(nil, failure)
				return
			}
			if err := pauses.pause(ctx, failure); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// read reads one stream to its end, nil where that is no failure. left tells that the loop was left.
func (f *follower) read(ctx context.Context, pauses *backoff, yield func(Chunk, error) bool) (left bool, failure error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the call, which gRPC does not do by itself when it is not read to its end
	var attempt attempt
	receive, err := f.open(ctx, attempt.options()...)
	if err != nil {
		return false, f.failed(err)
	}
	for {
		response, err := receive()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			if attempt.brokeOff() {
				f.connection.answered()
				pauses.reached = true
			}
			return false, f.failed(err)
		}
		f.connection.answered()
		pauses.answered()
		f.followAnswered(response)
		chunks := response.GetChunks()
		if len(chunks) > 0 && chunks[len(chunks)-1].Sequence > f.position {
			pauses.progress()
		}
		for _, message := range chunks {
			chunk, err := f.accept(message)
			if err != nil {
				return false, err
			}
			if chunk != nil && !yield(chunk, nil) {
				return true, nil
			}
		}
		if f.over {
			return false, nil
		}
	}
}

// failed is the error of a stream that ended with a status.
func (f *follower) failed(err error) error {
	failure := errorOf(err)
	if detailsOf(failure).Reason != "" { // the transport's own statuses have none
		f.connection.answered()
	}
	if f.request != nil {
		if cannot := sendable(failure, f.request); cannot != nil {
			return cannot
		}
	}
	return failure
}

func (f *follower) open(ctx context.Context, options ...grpc.CallOption) (func() (chunkResponse, error), error) {
	if f.start != nil && f.position == 0 {
		return f.start(ctx, options...)
	}
	return receiver(f.connection.runs.WatchRun(f.connection.outgoing(ctx, ""), &pb.WatchRunRequest{
		RunId: f.runID, AfterSequence: f.position, UntilFinished: f.untilFinished,
	}, options...))
}

// followAnswered follows the parked run that the message was taken as an answer to, where it was.
func (f *follower) followAnswered(response chunkResponse) {
	if f.start == nil || f.position != 0 {
		return
	}
	if first, is := response.(*pb.StreamResponse); is && first.Answered != nil {
		f.runID = first.Answered.RunId
		f.position = first.Answered.AfterSequence
		f.autoResumeError = first.Answered.AutoResumeError
	}
}

// accept is the chunk to hand out; nil for one that was handed out before or is to be left out.
func (f *follower) accept(message *pb.Chunk) (Chunk, error) {
	sequence := message.Sequence
	if sequence <= f.position {
		return nil, nil
	}
	if f.runID == "" { // the server chose it
		f.runID = message.RunId
	}
	// A sub-agent's run is a part of its root's log: its numbers have gaps, and its paths are long.
	isPart := message.RunId != f.runID
	if sequence != f.position+1 && !isPart {
		return nil, SequenceGap{StreamError{&Error{
			Code:    codes.DataLoss,
			Message: fmt.Sprintf("chunk %d of run %s is missing: %d came instead", f.position+1, f.runID, sequence),
			Metadata: map[string]string{
				"run_id": f.runID, "expected": number(f.position + 1), "sequence": number(sequence),
			},
		}}}
	}
	chunk := chunkOf(message)
	if chunk == nil && !message.Ignorable {
		return nil, UnknownChunk{StreamError{&Error{
			Code:     codes.DataLoss,
			Message:  fmt.Sprintf("chunk %d of run %s is of a type this version does not know", sequence, f.runID),
			Metadata: map[string]string{"run_id": f.runID, "sequence": number(sequence)},
		}}}
	}
	f.position = sequence
	if isPart {
		f.atRest = true
	} else if len(message.AgentPath) == 0 {
		finish, isFinish := chunk.(*FinishChunk)
		isParked := isFinish && finish.Reason == FinishReasonSuspended
		f.atRest = isFinish && !(isParked && f.untilFinished)
		f.over = isFinish && !isParked
	}
	if f.skip != nil && chunk != nil {
		if f.skip(chunk) {
			return nil, nil
		}
		f.skip = nil
	}
	return chunk, nil
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }
