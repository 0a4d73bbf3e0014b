package entracte

import (
	"context"
	"errors"
	"io"
	"iter"

	pb "entracte.dev/go/entracte/v1"
)

// late are the follow-ups of a run that has `after` chunks, each once it is settled, until all of them are. It
// waits until the run has ended.
func late(ctx context.Context, c *connection, runID string, after uint64) iter.Seq2[FollowUp, error] {
	return func(yield func(FollowUp, error) bool) {
		pauses := c.backoff()
		reader := &lateReader{connection: c, runID: runID, after: after, told: map[string]bool{}}
		for {
			pauses.begin()
			done, failure := reader.read(ctx, pauses, yield)
			if done {
				return
			}
			if ctx.Err() != nil {
				failure = contextError(ctx)
			} else if pauses.mayTryAgain(failure) {
				failure = pauses.pause(ctx, failure)
			}
			if failure != nil {
				yield(FollowUp{}, failure)
				return
			}
		}
	}
}

type lateReader struct {
	connection *connection
	runID      string
	after      uint64
	told       map[string]bool // by kind and name
}

// read reads one stream. done: all was told, or the loop was left.
func (r *lateReader) read(ctx context.Context, pauses *backoff, yield func(FollowUp, error) bool) (done bool, failure error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := r.connection.runs.WatchRun(r.connection.outgoing(ctx, ""), &pb.WatchRunRequest{
		RunId: r.runID, AfterSequence: r.after, UntilFinished: true, IncludeLate: true,
	})
	if err != nil {
		return false, errorOf(err)
	}
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, errorOf(err)
		}
		r.connection.answered()
		pauses.answered()
		if len(response.Chunks) > 0 {
			r.after = response.Chunks[len(response.Chunks)-1].Sequence
			pauses.progress()
		}
		for _, message := range response.FollowUps {
			job := followUpOf(message)
			key := string(job.Kind) + " " + job.Name
			if r.told[key] {
				continue
			}
			r.told[key] = true
			if !yield(job, nil) {
				return true, nil
			}
		}
	}
}
