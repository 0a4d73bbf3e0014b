package entracte_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"entracte.dev/go"
	pb "entracte.dev/go/entracte/v1"
)

// wire is a connection to a server that can be cut: what goes through it is copied, until then.
type wire struct {
	address string
	server  string

	mu    sync.Mutex
	ends  []net.Conn
	taken int
}

func newWire(t *testing.T, server string) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{address: listener.Addr().String(), server: server}
	t.Cleanup(func() {
		_ = listener.Close()
		w.cut()
	})
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", server)
			if err != nil {
				_ = near.Close()
				continue
			}
			w.mu.Lock()
			w.ends = append(w.ends, near, far)
			w.taken++
			w.mu.Unlock()
			go func() { _, _ = io.Copy(far, near) }()
			go func() { _, _ = io.Copy(near, far) }()
		}
	}()
	return w
}

// cut cuts the connections there are; new ones can be made.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, end := range w.ends {
		_ = end.Close()
	}
	w.ends = nil
}

func TestStreamsGoOnAfterACut(t *testing.T) {
	wire := newWire(t, shared.address)
	ctx, client := connect(t, wire.address)
	stream := client.Agent("play").StreamRun(ctx, script(
		[]object{{"text": "one "}, {"tool": "echo", "id": "c1", "args": object{"value": 1}}},
		[]object{{"text": "two "}, {"delay": 20}, {"text": "three "}, {"delay": 20}, {"text": "four"}},
	))
	var last uint64
	for chunk, err := range stream.Chunks() {
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "the sequence", chunk.Header().Sequence, last+1)
		last = chunk.Header().Sequence
		if chunk.Header().Type == entracte.TypeTextDelta || chunk.Header().Type == entracte.TypeToolCall {
			wire.cut()
		}
	}
	result := must(stream.Result())(t)
	equal(t, "the text", result.Text, "one two three four")
	equal(t, "the folded text", stream.Text(), result.Text)
	wire.mu.Lock()
	defer wire.mu.Unlock()
	if wire.taken < 2 {
		t.Errorf("it was connected %d times", wire.taken)
	}
}

func TestWaitsGoOnAfterACut(t *testing.T) {
	wire := newWire(t, shared.address)
	ctx, client := connect(t, wire.address)
	ended := make(chan error, 1)
	go func() {
		result, err := client.Agent("play").Generate(ctx, script([]object{{"text": "so "}, {"delay": 400}, {"text": "late"}}),
			entracte.WithRunID("go-cut"))
		if err == nil && result.Text != "so late" {
			err = errors.New("the text is " + result.Text)
		}
		ended <- err
	}()
	direct := must(entracte.NewClient(shared.address))(t)
	defer direct.Close()
	for chunk, err := range untilThere(ctx, direct, "go-cut") {
		if err != nil {
			t.Fatal(err)
		}
		if chunk.Header().Type == entracte.TypeTextDelta {
			wire.cut()
			break
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("a wait that was cut gives %v", err)
	}
	runs := 0
	for run, err := range client.Runs.List(ctx, entracte.RunFilter{AgentID: "play"}) {
		equal(t, "an error", err, nil)
		if run.RunID == "go-cut" {
			runs++
		}
	}
	equal(t, "the runs that were started", runs, 1)
}

// untilThere watches a run that somebody is about to start.
func untilThere(ctx context.Context, client *entracte.Client, runID string) func(func(entracte.Chunk, error) bool) {
	var unknown entracte.RunNotFound
	for {
		if _, err := client.Runs.GetWithoutResult(ctx, runID); !errors.As(err, &unknown) {
			return client.Runs.Watch(ctx, runID, 0)
		}
		select {
		case <-ctx.Done():
			return client.Runs.Watch(ctx, runID, 0)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// silent is a server that says nothing to the first call of a method, and answers those that follow.
type silent struct {
	pb.UnimplementedRunServiceServer
	asked chan struct{}
	mute  bool
}

func (s *silent) GetRun(ctx context.Context, request *pb.GetRunRequest) (*pb.GetRunResponse, error) {
	if s.mute {
		close(s.asked)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &pb.GetRunResponse{Run: &pb.Run{RunId: request.RunId}}, nil
}

// A server that dies before it has said a word is waited for, as one that had: it was there.
func TestAServerThatDiesBeforeItsFirstWord(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	serve := func(listener net.Listener, mute bool) (*grpc.Server, *silent) {
		service := &silent{asked: make(chan struct{}), mute: mute}
		server := grpc.NewServer()
		pb.RegisterRunServiceServer(server, service)
		go func() { _ = server.Serve(listener) }()
		return server, service
	}
	first, service := serve(listener, true)
	ctx, client := connect(t, address)
	go func() {
		<-service.asked
		first.Stop()
		time.Sleep(1200 * time.Millisecond) // longer than a server that was never there is asked
		if listener, err := net.Listen("tcp", address); err == nil {
			second, _ := serve(listener, false)
			t.Cleanup(second.Stop)
		}
	}()
	run := must(client.Runs.Get(ctx, "r1"))(t)
	equal(t, "the run", run.RunID, "r1")
}
