package entracte

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
)

// pauses are the times between attempts.
type pauses struct {
	first, longest time.Duration
	// attempts is how often a server that never answered is tried.
	attempts int
}

var usualPauses = pauses{first: 100 * time.Millisecond, longest: 5 * time.Second, attempts: 4}

// backoff says whether and when a call is made again: after pauses that grow, with jitter, never shorter than
// the server asked for. It gives up after a few attempts where the server never answered, and after `patience`
// without progress where it did, in this call or before (`reached`), or asks to come back.
type backoff struct {
	pauses
	patience time.Duration
	reached  bool
	closed   *atomic.Bool
	attached bool
	failures int
	since    time.Time
	begun    time.Time
}

// begin says that an attempt begins.
func (b *backoff) begin() { b.begun = time.Now() }

// answered says that the server answered. That alone is progress only when the attempt has lasted a while, or
// else one that answers and fails, over and over, would be tried for ever.
func (b *backoff) answered() {
	b.attached = true
	if time.Since(b.begun) > b.longest {
		b.progress()
	}
}

// progress says that something new arrived: the count starts again.
func (b *backoff) progress() {
	b.attached = true
	b.failures = 0
	b.since = time.Time{}
}

// mayTryAgain tells whether a call that failed may be made again: the server was unavailable, or the
// connection to one that had answered broke, or one that had taken this call said when to come back. Not once
// the client was closed.
func (b *backoff) mayTryAgain(failure error) bool {
	given := detailsOf(failure)
	if b.closed.Load() {
		return false
	}
	if given.Code == codes.Unavailable {
		return true
	}
	if given.Reason == "" {
		switch given.Code {
		case codes.Canceled: // what a server says of calls that are under way, or arrive, as it stops
			return true
		case codes.Unknown, codes.Internal: // what proxies and the transport say when a connection breaks
			return b.attached || b.reached
		}
	}
	return b.attached && given.RetryAfter > 0
}

// pause waits before the next attempt. When there is to be none it returns the failure, or the error of a
// context that is done.
func (b *backoff) pause(ctx context.Context, failure error) error {
	now := time.Now()
	b.failures++
	if b.since.IsZero() {
		b.since = now
	}
	pause := min(b.longest, b.first<<min(b.failures-1, 16))
	pause = pause/2 + rand.N(pause/2+1)
	if asked := detailsOf(failure).RetryAfter; asked > 0 {
		pause = max(pause, asked)
	} else if !b.attached && !b.reached && b.failures >= b.attempts {
		return failure
	}
	if now.Add(pause).Sub(b.since) > b.patience {
		return failure
	}
	if end, bounded := ctx.Deadline(); bounded && !now.Add(pause).Before(end) {
		return failure
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return contextError(ctx)
	}
}
