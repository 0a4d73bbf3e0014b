// The Go SDK's testee: it carries out commands that come as lines of JSON and writes what comes of them. The protocol
// is in ../../README.md.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"entracte.dev/go"
)

// testee carries out commands, each in a goroutine of its own.
type testee struct {
	mu      sync.Mutex
	clients map[string]*entracte.Client
	shown   map[string]entracte.Call
	running map[string]*command

	output sync.Mutex
}

// command is one command that is carried out: what it writes, and how fast it reads a stream.
type command struct {
	*testee
	asked  *asked
	ctx    context.Context
	cancel context.CancelFunc

	pace    sync.Mutex
	allowed int // elements that may be asked for; below zero: all
	more    chan struct{}
}

func main() {
	it := &testee{
		clients: map[string]*entracte.Client{},
		shown:   map[string]entracte.Call{},
		running: map[string]*command{},
	}
	if err := it.serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve carries out what comes on standard input, until that ends.
func (t *testee) serve() error {
	var all sync.WaitGroup
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := input.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) == 0 && err != nil {
			break
		}
		given := &asked{}
		if err := json.Unmarshal(line, given); err != nil {
			return fmt.Errorf("a line that is none of the protocol: %w", err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		c := &command{testee: t, asked: given, ctx: ctx, cancel: cancel, allowed: -1, more: make(chan struct{}, 1)}
		if given.Pull != nil {
			c.allowed = *given.Pull
		}
		t.mu.Lock()
		t.running[given.ID] = c
		t.mu.Unlock()
		all.Go(c.carryOut)
	}
	t.mu.Lock()
	for _, running := range t.running {
		running.cancel()
	}
	for _, client := range t.clients {
		_ = client.Close()
	}
	t.mu.Unlock()
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	select {
	case <-ended:
		return nil
	case <-time.After(4 * time.Second):
		return errors.New("commands did not end in time")
	}
}

// write writes a line.
func (c *command) write(key string, value any) {
	line := map[string]any{"id": c.asked.ID, key: value}
	c.output.Lock()
	defer c.output.Unlock()
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(line); err != nil {
		fmt.Fprintln(os.Stderr, "cannot write a line:", err)
	}
}

func (c *command) carryOut() {
	defer c.cancel()
	operation, known := operations[c.asked.Op]
	var ok any
	err := error(usage("the testee does not know the op " + c.asked.Op))
	if known {
		ok, err = operation(c)
	}
	c.mu.Lock()
	delete(c.running, c.asked.ID)
	c.mu.Unlock()
	switch {
	case err == nil && ok == nil:
		c.write("ok", map[string]any{})
	case err == nil:
		c.write("ok", ok)
	case c.ctx.Err() != nil && errors.Is(err, context.Canceled):
		c.write("cancelled", true)
	default:
		c.write("error", failure(err))
	}
}

// usage is an error of the testee's own: it was asked what it does not know.
type usage string

func (u usage) Error() string { return string(u) }

// allow allows so many elements more; nil: all.
func (c *command) allow(count *int) {
	c.pace.Lock()
	defer c.pace.Unlock()
	if count == nil || c.allowed < 0 {
		c.allowed = -1
	} else {
		c.allowed += *count
	}
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// turn waits until another element may be asked for.
func (c *command) turn() error {
	for {
		c.pace.Lock()
		may := c.allowed != 0
		if c.allowed > 0 {
			c.allowed--
		}
		c.pace.Unlock()
		if may {
			return nil
		}
		select {
		case <-c.more:
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
}

// bounded is the command's context with the timeout that it was given.
func (c *command) bounded(seconds *float64) (context.Context, context.CancelFunc) {
	if seconds == nil {
		return context.WithCancel(c.ctx)
	}
	return context.WithTimeout(c.ctx, duration(*seconds))
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
