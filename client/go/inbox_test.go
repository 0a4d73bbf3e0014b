package entracte_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"entracte.dev/go"
)

func TestInbox(t *testing.T) {
	ctx, client := connect(t, shared.address)
	play := client.Agent("play")
	asked := script(calls("ask", object{}), says("ok"))
	first := must(play.Generate(ctx, asked, entracte.WithRunID("go-inbox")))(t)
	second := must(play.Generate(ctx, asked))(t)

	var found []string
	for call, err := range client.Inbox.List(ctx, entracte.InboxFilter{AgentID: "play", PageSize: 1}) {
		equal(t, "an error", err, nil)
		found = append(found, call.RunID)
	}
	for _, run := range []string{first.RunID, second.RunID} {
		equal(t, "whether it is listed", strings.Contains(strings.Join(found, " "), run), true)
	}
	call := first.PendingCalls[0]
	claimed := must(client.Inbox.Claim(ctx, call, entracte.ClaimOptions{TTL: time.Minute}))(t)
	equal(t, "who has it", claimed.Claim != nil && claimed.Claim.Principal != "", true)

	var open []*entracte.PendingCall
	for change, err := range client.Inbox.Watch(ctx, entracte.InboxWatchFilter{RunID: "go-inbox"}) {
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, change.Opened...)
		if change.SnapshotComplete {
			equal(t, "what is open", open[0].PendingCallID, call.PendingCallID)
			released := must(client.Inbox.Release(ctx, call, entracte.ClaimOptions{}))(t)
			equal(t, "whether it is claimed", released.Claim == nil, true)
			must(play.Resume(ctx, entracte.RunCall{RunID: "go-inbox", ToolCallID: call.ToolCallID}, "x"))(t)
		}
		if len(change.Closed) > 0 {
			equal(t, "what was closed", change.Closed[0], call.PendingCallID)
			break
		}
	}
	decided := must(client.Inbox.Get(ctx, call.PendingCallID))(t)
	equal(t, "the state", decided.State, entracte.PendingCallDecided)
	equal(t, "the answer", decided.Decision.Data, entracte.JSON(`"x"`))
	must(play.Resume(ctx, entracte.PendingCallID(second.PendingCalls[0].PendingCallID), "y"))(t)
}

func TestRequestIDsJoin(t *testing.T) {
	ctx, client := connect(t, shared.address)
	play := client.Agent("play")
	asked := script(calls("ask", object{}), says("ok"))
	first := must(play.Generate(ctx, asked, entracte.WithRequestID("go-once")))(t)
	again := must(play.Generate(ctx, asked, entracte.WithRequestID("go-once")))(t)
	equal(t, "the run", again.RunID, first.RunID)
	var reused entracte.RequestIDReused
	if _, err := play.Generate(ctx, entracte.Text("else"), entracte.WithRequestID("go-once")); !errors.As(err, &reused) {
		t.Errorf("the id of something else gives %v", err)
	}
	call := first.PendingCalls[0]
	one := must(play.Resume(ctx, call, 1, entracte.WithRequestID("go-answer")))(t)
	two := must(play.ResumeStream(ctx, call, 1, entracte.WithRequestID("go-answer")).Result())(t)
	equal(t, "the text", one.Text+two.Text, "okok")

	pages, token := 0, ""
	for {
		page := must(client.Runs.ListPage(ctx, entracte.RunFilter{
			AgentID: "play", States: []entracte.RunState{entracte.RunSucceeded}, PageSize: 1,
		}, token))(t)
		pages++
		if token = page.NextPageToken; token == "" || pages == 2 {
			break
		}
	}
	var invalid entracte.PageTokenInvalid
	if _, err := client.Runs.ListPage(ctx, entracte.RunFilter{}, "nonsense"); !errors.As(err, &invalid) {
		t.Errorf("a token that is none gives %v", err)
	}
}

func TestThreads(t *testing.T) {
	ctx, client := connect(t, shared.address)
	thread := must(client.Threads.Create(ctx, "go-user", entracte.NewThread{
		ThreadID: "go-thread", Title: "One", Metadata: object{"n": entracte.JSON("18446744073709551616")},
	}))(t)
	equal(t, "the metadata", thread.Metadata, entracte.JSON(`{"n":18446744073709551616}`))
	var exists entracte.ThreadExists
	if _, err := client.Threads.Create(ctx, "go-user", entracte.NewThread{ThreadID: "go-thread"}); !errors.As(err, &exists) {
		t.Errorf("a thread that is there gives %v", err)
	}
	memory := entracte.WithMemory(entracte.Memory{Thread: "go-thread", Resource: "go-user", LastMessages: new(4)})
	play := client.Agent("play")
	must(play.Generate(ctx, script(calls("echo", object{"value": "v"}), says("Said.")), memory))(t)
	var roles, texts, tools []string
	for message, err := range client.Threads.Messages(ctx, "go-thread", entracte.ThreadMessageFilter{PageSize: 1}) {
		equal(t, "an error", err, nil)
		roles = append(roles, string(message.Role))
		texts = append(texts, message.Text())
		for _, call := range message.ToolInvocations() {
			tools = append(tools, call.ToolName+" "+string(call.State)+" "+call.Result.Text())
		}
	}
	equal(t, "the first role", roles[0], "user")
	equal(t, "the last text", texts[len(texts)-1], "Said.")
	equal(t, "the tools", strings.Join(tools, ","), `echo result "v"`)

	renamed := must(client.Threads.Update(ctx, "go-thread", entracte.ThreadUpdate{Title: new("Two")}))(t)
	equal(t, "the title", renamed.Title, "Two")
	listed := 0
	for found, err := range client.Threads.List(ctx, entracte.ThreadFilter{ResourceID: "go-user"}) {
		equal(t, "an error", err, nil)
		equal(t, "the thread", found.ThreadID, "go-thread")
		listed++
	}
	equal(t, "how many are listed", listed, 1)

	parked := must(play.Generate(ctx, script(calls("ask", object{}), says("ok")), memory))(t)
	var busy entracte.ThreadParked
	if _, err := play.Generate(ctx, entracte.Text("Hi"), memory); !errors.As(err, &busy) || busy.Metadata["run_id"] != parked.RunID {
		t.Errorf("a thread whose run is parked gives %v", err)
	}
	noted := must(client.Threads.UpdateWorkingMemory(ctx, entracte.OfResource("go-user"),
		entracte.WorkingMemoryUpdate{Content: "# Tea", ExpectedVersion: new(uint64(0))}))(t)
	equal(t, "the version", noted.Version, 1)
	var changed entracte.WorkingMemoryChanged
	if _, err := client.Threads.UpdateWorkingMemory(ctx, entracte.OfResource("go-user"),
		entracte.WorkingMemoryUpdate{ExpectedVersion: new(uint64(0))}); !errors.As(err, &changed) {
		t.Errorf("an old version gives %v", err)
	}
	equal(t, "what was noted", must(client.Threads.WorkingMemory(ctx, entracte.OfResource("go-user")))(t).Content, "# Tea")
	cancelled := must(client.Threads.Delete(ctx, "go-thread", entracte.DeleteOptions{Force: true}))(t)
	equal(t, "the run that was cancelled", strings.Join(cancelled, " "), parked.RunID)
	var gone entracte.ThreadNotFound
	if _, err := client.Threads.Get(ctx, "go-thread"); !errors.As(err, &gone) {
		t.Errorf("a deleted thread gives %v", err)
	}
}
