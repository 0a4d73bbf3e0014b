package entracte

import (
	"log/slog"
	"sync"
	"time"
)

// Callbacks are functions that are told what happens while a run is followed. They are called one after the
// other, beside the stream: one that is slow does not slow it down, one that panics is logged. At the end those
// still behind get 5 seconds. They cannot hold up or change what they observe.
type Callbacks struct {
	// OnChunk is told every chunk, sub-agents' too.
	OnChunk func(Chunk)
	// OnStepFinish is told each step of the run's own agent, when it has ended.
	OnStepFinish func(*StepResult)
	// OnFinish is told the result, once, when the run has ended other than by an error or a cancellation. A run
	// that parks has not ended.
	OnFinish func(*GenerateResult)
	// OnError is told why the run failed (a [*RunError]), or why its stream could not be read; not that the caller
	// cancelled the context.
	OnError func(error)
	// OnAbort is told that the run was cancelled.
	OnAbort func(*AbortChunk)
	// OnTitleGenerated is told the title that the run's thread was given, if it was given one. The end of the
	// stream waits for it, for 30 seconds at most.
	OnTitleGenerated func(title string)
}

// any tells whether there is one.
func (c *Callbacks) any() bool {
	return c.OnChunk != nil || c.OnStepFinish != nil || c.OnFinish != nil || c.OnError != nil || c.OnAbort != nil ||
		c.OnTitleGenerated != nil
}

// callbackGrace is how long the end of a stream waits for callbacks that are behind.
const callbackGrace = 5 * time.Second

// observer calls callbacks, one after the other, in a goroutine that lives while there are some to call.
type observer struct {
	log *slog.Logger

	mu    sync.Mutex
	queue []func()
	idle  chan struct{} // closed when the goroutine that works has nothing left; nil while there is none
}

// tell has a callback called with a value, if there is one.
func tell[T any](o *observer, callback func(T), value T) {
	if callback == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue = append(o.queue, func() { callback(value) })
	if o.idle == nil {
		o.idle = make(chan struct{})
		go o.work(o.idle)
	}
}

func (o *observer) work(idle chan struct{}) {
	defer close(idle)
	for {
		o.mu.Lock()
		if len(o.queue) == 0 {
			o.idle = nil
			o.mu.Unlock()
			return
		}
		next := o.queue[0]
		o.queue = o.queue[1:]
		o.mu.Unlock()
		o.call(next)
	}
}

func (o *observer) call(callback func()) {
	defer func() {
		if fault := recover(); fault != nil {
			o.log.Error("entracte: a callback panicked", "panic", fault)
		}
	}()
	callback()
}

// drain waits until all were called, for callbackGrace at most.
func (o *observer) drain() {
	o.mu.Lock()
	idle := o.idle
	o.mu.Unlock()
	if idle == nil {
		return
	}
	timer := time.NewTimer(callbackGrace)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
		o.mu.Lock()
		o.queue = nil
		o.mu.Unlock()
		o.log.Warn("entracte: callbacks did not end in time and were given up", "after", callbackGrace)
	}
}
