package entracte_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"entracte.dev/go"
)

func TestGenerate(t *testing.T) {
	ctx, client := connect(t, shared.address)
	result := must(client.Agent("play").Generate(ctx, entracte.Text("Hello, Wörld 😀"), entracte.WithMaxSteps(3)))(t)
	equal(t, "the text", result.Text, "Hello, Wörld 😀")
	equal(t, "the reason", result.FinishReason, entracte.FinishReasonStop)
	equal(t, "the cause", result.StopCause, entracte.StopCauseModelFinished)
	equal(t, "the number of steps", len(result.Steps), 1)
	equal(t, "the number of messages", len(result.Messages), 2)
}

func TestStreamFoldsToTheResult(t *testing.T) {
	ctx, client := connect(t, shared.address)
	stream := client.Agent("play").StreamRun(ctx, script(
		[]object{{"reasoning": "Hm."}, {"text": "Let me see. "}, {"tool": "echo", "id": "c1", "args": object{"value": 1}}},
		says("Done."),
	), entracte.WithRunID("go-fold"))
	var types []entracte.ChunkType
	var sequence uint64
	for chunk, err := range stream.Chunks() {
		if err != nil {
			t.Fatal(err)
		}
		header := chunk.Header()
		equal(t, "the sequence", header.Sequence, sequence+1)
		sequence = header.Sequence
		types = append(types, header.Type)
	}
	result := must(stream.Result())(t)
	fold := stream.Fold()
	equal(t, "the run", stream.RunID(), "go-fold")
	equal(t, "the position", stream.Position(), sequence)
	equal(t, "the first type", types[0], entracte.TypeStart)
	equal(t, "the last type", types[len(types)-1], entracte.TypeFinish)
	equal(t, "the text", fold.Text(), result.Text)
	equal(t, "the usage", fold.Usage(), result.Usage)
	equal(t, "the number of steps", len(fold.Steps()), len(result.Steps))
	for i, step := range fold.Steps() {
		equal(t, "a step's text", step.Text, result.Steps[i].Text)
		equal(t, "a step's thoughts", step.ReasoningText, result.Steps[i].ReasoningText)
		equal(t, "a step's usage", step.Usage, result.Steps[i].Usage)
		equal(t, "a step's results", len(step.ToolResults), len(result.Steps[i].ToolResults))
	}
	equal(t, "what a tool returned", result.ToolResults[0].Result, entracte.JSON("1"))
	read := must(client.Runs.Get(ctx, "go-fold"))(t)
	equal(t, "the state", read.State, entracte.RunSucceeded)
	equal(t, "the text that is read", read.Result.Text, result.Text)
}

func TestLeavingAndGoingOn(t *testing.T) {
	ctx, client := connect(t, shared.address)
	stream := client.Agent("play").StreamRun(ctx, entracte.Text("one two three"))
	var seen []uint64
	for range 20 { // one chunk a loop
		for chunk, err := range stream.Chunks() {
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, chunk.Header().Sequence)
			break
		}
	}
	rest := must(client.Runs.Get(ctx, stream.RunID()))(t)
	equal(t, "the number of chunks", uint64(len(seen)), rest.LastSequence)
	equal(t, "in order", slices.IsSorted(seen), true)
	var text strings.Builder
	for piece, err := range client.Agent("play").StreamRun(ctx, entracte.Text("one two three")).Texts() {
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(piece)
	}
	equal(t, "the text", text.String(), "one two three")
}

func TestDecisions(t *testing.T) {
	ctx, client := connect(t, shared.address)
	play := client.Agent("play")
	paid := script(calls("refund", object{"order_id": "7", "cents": 100}), says("Paid."))

	result := must(play.Generate(ctx, paid))(t)
	equal(t, "the reason", result.FinishReason, entracte.FinishReasonSuspended)
	call := result.PendingCalls[0]
	equal(t, "the kind", call.Kind, entracte.KindApproval)
	var mismatch entracte.VerbMismatch
	if _, err := play.Resume(ctx, call, true); !errors.As(err, &mismatch) || mismatch.Metadata["kind"] == "" {
		t.Errorf("the wrong verb gives %v", err)
	}
	tampered := *call
	tampered.ArgsDigest = make([]byte, 32)
	var other entracte.ArgsDigestMismatch
	if _, err := play.Approve(ctx, &tampered); !errors.As(err, &other) {
		t.Errorf("the digest of something else gives %v", err)
	}
	stream := play.ApproveStream(ctx, call, entracte.WithComment("fine"),
		entracte.WithEditedArgs(object{"order_id": "7", "cents": 99}))
	equal(t, "the verb", must(stream.Commit())(t).Verb, entracte.VerbApprove)
	result = must(stream.Result())(t)
	equal(t, "the text", result.Text, "Paid.")
	equal(t, "what was done", result.ToolResults[0].Result, entracte.JSON(`{"order_id":"7","cents":99}`))
	var decided entracte.PendingCallAlreadyDecided
	if _, err := play.Approve(ctx, call); !errors.As(err, &decided) || decided.Metadata["verb"] == "" {
		t.Errorf("a second decision gives %v", err)
	}

	result = must(play.Generate(ctx, paid))(t)
	result = must(play.Decline(ctx, result.PendingCalls[0], "too much", entracte.WithReasonData([]int{1})))(t)
	equal(t, "the text", result.Text, "Paid.")
	for decision, err := range client.Inbox.Decisions(ctx, entracte.DecisionFilter{RunID: result.RunID}) {
		equal(t, "an error", err, nil)
		equal(t, "why", decision.Reason, "too much")
		equal(t, "why, as data", decision.ReasonData, entracte.JSON("[1]"))
	}
}

func TestAnswersOfEveryKind(t *testing.T) {
	ctx, client := connect(t, shared.address)
	play := client.Agent("play")
	for answer, text := range map[any]entracte.JSON{
		nil: "null", false: "false", 0: "0", "": `""`, "<ß>&": `"<ß>&"`,
		entracte.JSON("18446744073709551617"): "18446744073709551617", entracte.JSON("[]"): "[]",
	} {
		var waiting *entracte.ToolCallSuspendedChunk
		for chunk, err := range play.Stream(ctx, script(calls("ask", object{}), says("Thanks."))) {
			if err != nil {
				t.Fatal(err)
			}
			if asked, is := chunk.(*entracte.ToolCallSuspendedChunk); is {
				waiting = asked
			}
		}
		equal(t, "the question", waiting.SuspendPayload, entracte.JSON(`{"question":"What is it?"}`))
		result := must(play.Resume(ctx, waiting, answer))(t)
		equal(t, fmt.Sprintf("what becomes of %v", answer), result.ToolResults[0].Result, text)
	}
}

func TestBigIntegers(t *testing.T) {
	ctx, client := connect(t, shared.address)
	result := must(client.Agent("play").Generate(ctx, script(
		[]object{{"tool": "echo", "id": "c1", "rawArgs": `{"value": 123456789012345678901234567890}`}}, says("ok"),
	)))(t)
	returned := result.ToolResults[0].Result
	equal(t, "the text", returned, entracte.JSON("123456789012345678901234567890"))
	value := must(returned.Value())(t)
	equal(t, "the value", fmt.Sprint(value), "123456789012345678901234567890")
	var small int64
	if err := returned.Unmarshal(&small); err == nil {
		t.Error("a number that does not fit is no error")
	}
}

type clockArgs struct {
	Zone string `json:"zone" description:"A time zone."`
}

func TestClientToolsAndCallbacks(t *testing.T) {
	var log bytes.Buffer // the handler has a lock of its own
	ctx, client := connect(t, shared.address, entracte.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	var mu sync.Mutex
	told := map[string]int{}
	count := func(name string) {
		mu.Lock()
		defer mu.Unlock()
		told[name]++
	}
	clock := entracte.NewTool("clock", "Tells the time.", func(_ context.Context, args clockArgs) (any, error) {
		count("clock " + args.Zone)
		return object{"time": "noon"}, nil
	})
	broken := entracte.ClientTool{Name: "broken", Func: func(context.Context, entracte.JSON) (any, error) {
		count("broken")
		panic("on purpose")
	}}
	callbacks := entracte.Callbacks{
		OnChunk:      func(entracte.Chunk) { count("chunk"); panic("on purpose") },
		OnStepFinish: func(*entracte.StepResult) { count("step") },
		OnFinish:     func(result *entracte.GenerateResult) { count("finish " + result.Text) },
		OnError:      func(err error) { count("error " + err.Error()) },
	}
	result := must(client.Agent("play").Generate(ctx, script(
		[]object{
			{"tool": "clock", "id": "c1", "args": object{"zone": "UTC"}}, {"tool": "broken", "id": "c2", "args": object{}},
		},
		says("It is noon."),
	), entracte.WithClientTools(clock, broken), entracte.WithCallbacks(callbacks)))(t)
	equal(t, "whether the log has the panics", strings.Contains(log.String(), "a callback panicked") &&
		strings.Contains(log.String(), "tool=broken"), true)
	equal(t, "the text", result.Text, "It is noon.")
	equal(t, "what the clock said", result.ToolResults[0].Result, entracte.JSON(`{"time":"noon"}`))
	mu.Lock()
	defer mu.Unlock()
	run := must(client.Runs.GetWithoutResult(ctx, result.RunID))(t)
	equal(t, "the chunks that were told", uint64(told["chunk"]), run.LastSequence)
	for name, times := range map[string]int{"clock UTC": 1, "broken": 1, "step": 2, "finish It is noon.": 1} {
		equal(t, "how often it was told "+name, told[name], times)
	}
}

func TestContexts(t *testing.T) {
	ctx, client := connect(t, shared.address)
	play := client.Agent("play")
	slow := script([]object{{"text": "So "}, {"delay": 300_000}, {"text": "slow"}})

	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err := play.Generate(short, slow, entracte.WithRunID("go-slow"))
	var late entracte.DeadlineExceeded
	if !errors.As(err, &late) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a deadline gives %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	var last, told error
	heard := entracte.WithCallbacks(entracte.Callbacks{OnError: func(err error) { told = err }})
	for chunk, err := range client.Runs.Watch(cancelled, "go-slow", 0, heard) {
		if last = err; err == nil && chunk.Header().Type == entracte.TypeTextDelta {
			cancel()
		}
	}
	cancel()
	if !errors.Is(last, context.Canceled) || told != nil {
		t.Errorf("a cancelled context gives %v and tells %v", last, told)
	}
	short, cancel = context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if _, err := client.Runs.WatchRun(short, "go-slow", 0, heard).Result(); !errors.As(told, &late) {
		t.Errorf("a deadline gives %v and tells %v", err, told)
	}
	run := must(client.Runs.Cancel(ctx, "go-slow", entracte.CancelOptions{Reason: "enough", Wait: true}))(t)
	equal(t, "the state", run.State, entracte.RunCancelled)
	for chunk, err := range client.Runs.Watch(ctx, "go-slow", run.LastSequence-2) {
		equal(t, "an error", err, nil)
		if abort, is := chunk.(*entracte.AbortChunk); is {
			equal(t, "the reason", abort.Reason, "enough")
		}
	}
	equal(t, "an error", client.Runs.Delete(ctx, "go-slow", entracte.DeleteOptions{}), nil)
	var gone entracte.RunNotFound
	if _, err := client.Runs.Get(ctx, "go-slow"); !errors.As(err, &gone) || gone.Metadata["run_id"] != "go-slow" {
		t.Errorf("a deleted run gives %v", err)
	}
	for _, err := range client.Runs.Watch(ctx, "go-slow", 0) {
		last = err
	}
	var class entracte.NotFound
	if !errors.As(last, &class) {
		t.Errorf("a deleted run gives %v", last)
	}
}

func TestRefusals(t *testing.T) {
	ctx, client := connect(t, shared.address)
	var failed entracte.AgentNotFound
	_, err := client.Agent("nobody").Generate(ctx, entracte.Text("Hi"))
	if !errors.As(err, &failed) || !strings.HasPrefix(err.Error(), "AGENT_NOT_FOUND: ") {
		t.Errorf("an unknown agent gives %v", err)
	}
	var wrong entracte.RequestInvalid
	_, err = client.Agent("play").Generate(ctx, entracte.Text("Hi"), entracte.WithMaxSteps(0))
	if !errors.As(err, &wrong) || len(wrong.Violations) != 1 || wrong.Violations[0].Field != "options.max_steps" {
		t.Errorf("no steps gives %v", err)
	}
	for what, option := range map[string]entracte.GenerateOption{
		"options.stop_when":           entracte.WithStopWhen(entracte.StopWhen{}),
		"options.tool_choice":         entracte.WithToolChoice(entracte.ToolChoice{Mode: "perhaps"}),
		"options.max_steps":           entracte.WithMaxSteps(1 << 40),
		"options.request_context":     entracte.WithRequestContext(func() {}),
		"options.versions[a]":         entracte.WithVersions(map[string]entracte.AgentVersion{"a": {}}),
		"options.scorers[s].sampling": entracte.WithScorers(map[string]entracte.Scorer{"s": {Sampling: "some"}}),
	} {
		_, err := client.Agent("play").Generate(ctx, entracte.Text("Hi"), option)
		if !errors.As(err, &wrong) || wrong.Violations[0].Field != what {
			t.Errorf("%s gives %v", what, err)
		}
	}
	if _, err := client.Agent("play").Generate(ctx, entracte.Text("\xff")); !errors.As(err, &wrong) {
		t.Errorf("a text that is no UTF-8 gives %v", err)
	}
	if _, err := client.Agent("play").Approve(ctx, entracte.PendingCallID("")); !errors.As(err, &wrong) {
		t.Errorf("a call without a name gives %v", err)
	}
	var schema entracte.SchemaInvalid
	_, err = client.Agent("play").Generate(ctx, entracte.Text("Hi"), entracte.WithStructuredOutput(
		entracte.StructuredOutput{Schema: entracte.JSON(`{"type": "nothing"}`)}))
	if !errors.As(err, &schema) {
		t.Errorf("a schema that is none gives %v", err)
	}
}

func TestStructuredOutput(t *testing.T) {
	ctx, client := connect(t, shared.address)
	type order struct {
		Number int      `json:"number"`
		Items  []string `json:"items"`
		Note   *string  `json:"note"`
	}
	result := must(client.Agent("play").Generate(ctx, script(says(`{"number": 7, "items": ["kettle"]}`)),
		entracte.WithStructuredOutput(entracte.StructuredOutput{Schema: entracte.SchemaFor[order]()}),
		entracte.WithModelSettings(entracte.ModelSettings{Temperature: new(0.0), Seed: new(int64(7))}),
	))(t)
	var read order
	equal(t, "an error", result.Object.Unmarshal(&read), nil)
	equal(t, "the number", read.Number, 7)
	equal(t, "the items", fmt.Sprint(read.Items), "[kettle]")
}
