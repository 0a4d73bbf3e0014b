package entracte_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"entracte.dev/go"
)

// limit bounds every wait of a test.
const limit = 60 * time.Second

// shared is a server that all tests use, each with runs of its own.
var shared *server

// server is a process of tests/sdk_server.py: the agent `play` says what its message, a script, tells it to.
type server struct {
	address string
	command *exec.Cmd
	stdin   io.WriteCloser
}

// startServer starts one; address and store are optional.
func startServer(arguments ...string) (*server, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	command := exec.Command(
		filepath.Join(root, ".venv/bin/python"), append([]string{"-m", "tests.sdk_server"}, arguments...)...,
	)
	command.Dir = root
	command.Stderr = os.Stderr
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("%w: run `make bootstrap` at the top of the repository first", err)
	}
	said := bufio.NewReader(stdout)
	address, err := said.ReadString('\n')
	if err != nil {
		_ = command.Process.Kill()
		_ = command.Wait()
		return nil, fmt.Errorf("the server did not start: %w", err)
	}
	go func() { _, _ = io.Copy(io.Discard, said) }() // what it logs, until it ends
	return &server{strings.TrimSpace(address), command, stdin}, nil
}

// stop ends it in good order.
func (s *server) stop() {
	_ = s.stdin.Close()
	_ = s.command.Wait()
}

// kill ends it on the spot.
func (s *server) kill() {
	_ = s.command.Process.Kill()
	_ = s.command.Wait()
}

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if shared, err = startServer(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer shared.stop()
		return m.Run()
	}())
}

// connect gives a context and a client of a server, for a test that runs beside others.
func connect(t *testing.T, address string, options ...entracte.ClientOption) (context.Context, *entracte.Client) {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	client, err := entracte.NewClient(address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return ctx, client
}

type object = map[string]any

// script is a message that tells the agent `play` its answers.
func script(answers ...[]object) entracte.Text {
	text, err := json.Marshal(answers)
	if err != nil {
		panic(err)
	}
	return entracte.Text(text)
}

func says(text string) []object { return []object{{"text": text}} }

func calls(tool string, args object) []object {
	return []object{{"tool": tool, "id": "c1", "args": args}}
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, not %v", what, got, want)
	}
}
