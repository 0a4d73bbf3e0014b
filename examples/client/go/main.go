// Talks to the support agent of examples/support.py: asks, shows the answer as it comes, and decides what waits for a
// person. At a terminal you decide; without one, all is agreed to.
//
//	entracte serve examples.support:app                    # in one terminal
//	go run . localhost:50051 "My kettle arrived broken"    # in another
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"entracte.dev/go"
)

func main() {
	address, question := "localhost:50051", "My kettle arrived broken."
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	if len(os.Args) > 2 {
		question = os.Args[2]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := talk(ctx, address, question)
	var unreachable entracte.ServerUnreachable
	switch {
	case errors.As(err, &unreachable):
		fmt.Fprintf(os.Stderr, "No server answers at %s. Start one: entracte serve examples.support:app\n", address)
		os.Exit(3)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// talk has one conversation, with all the decisions it takes.
func talk(ctx context.Context, address, question string) error {
	client, err := entracte.NewClient(address)
	if err != nil {
		return err
	}
	defer client.Close()
	fmt.Println(">", question)
	result, err := show(client.Agent("support").StreamRun(ctx, entracte.Text(question)))
	for err == nil && len(result.PendingCalls) > 0 {
		var stream *entracte.RunStream
		if stream, err = decide(ctx, client, result.PendingCalls[0]); err == nil {
			result, err = show(stream)
		}
	}
	if err != nil {
		return err
	}
	fmt.Printf("(%s, %d tokens)\n", result.FinishReason, result.Usage.TotalTokens)
	if result.Error != nil {
		return result.Error
	}
	return nil
}

// show shows a stream as it comes, and gives what it comes to.
func show(stream *entracte.RunStream) (*entracte.GenerateResult, error) {
	for chunk, err := range stream.Chunks() {
		if err != nil {
			return nil, err
		}
		switch chunk := chunk.(type) {
		case *entracte.TextDeltaChunk:
			fmt.Print(chunk.Text)
		case *entracte.ToolCallChunk:
			fmt.Printf("\n[%s %s]\n", chunk.ToolName, chunk.Args)
		}
	}
	fmt.Println()
	return stream.Result()
}

// decide has a person decide a call, and gives what comes of it as a stream.
func decide(ctx context.Context, client *entracte.Client, call *entracte.PendingCall) (*entracte.RunStream, error) {
	agent := client.Agent(call.AgentID)
	switch call.Kind {
	case entracte.KindApproval:
		if said := ask(fmt.Sprintf("May it call %s with %s?", call.ToolName, call.Args), "yes"); said != "yes" {
			return agent.DeclineStream(ctx, call, said), nil
		}
		return agent.ApproveStream(ctx, call), nil
	case entracte.KindSuspension:
		var asked struct {
			Question string
			Options  []struct{ Label string }
		}
		if err := call.SuspendPayload.Unmarshal(&asked); err != nil {
			return nil, err
		}
		if call.ToolName != "ask_user" {
			return agent.ResumeStream(ctx, call, map[string]bool{"ok": ask(asked.Question, "yes") == "yes"}), nil
		}
		labels, otherwise := []string{}, "yes"
		for _, option := range asked.Options {
			labels = append(labels, option.Label)
			otherwise = labels[0]
		}
		return agent.ResumeStream(ctx, call, ask(asked.Question+" ("+strings.Join(labels, ", ")+")", otherwise)), nil
	}
	return agent.DeclineStream(ctx, call, "nobody can answer this here"), nil
}

// ask is what the person at the terminal says, or otherwise where there is nobody.
func ask(text, otherwise string) string {
	fmt.Print(text, " ")
	if in, err := os.Stdin.Stat(); err != nil || in.Mode()&os.ModeCharDevice == 0 {
		fmt.Println(otherwise)
		return otherwise
	}
	said, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	if said = strings.TrimSpace(said); said == "" {
		return otherwise
	}
	return said
}
