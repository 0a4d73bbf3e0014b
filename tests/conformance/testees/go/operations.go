package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"sort"

	"entracte.dev/go"
)

var operations map[string]func(*command) (any, error)

func init() {
	operations = map[string]func(*command) (any, error){
		"hello": (*command).hello, "connect": (*command).connect, "close": (*command).close,
		"cancel": (*command).cancelTarget, "pull": (*command).pullTarget,
		"generate": (*command).generate, "stream": (*command).stream,
		"approve": (*command).decide, "decline": (*command).decide, "resume": (*command).decide, "submit": (*command).decide,
		"runs.get": (*command).runsGet, "runs.list": (*command).runsList, "runs.watch": (*command).runsWatch,
		"runs.cancel": (*command).runsCancel, "runs.delete": (*command).runsDelete,
		"inbox.list": (*command).inboxList, "inbox.get": (*command).inboxGet, "inbox.watch": (*command).inboxWatch,
		"inbox.claim": (*command).inboxClaim, "inbox.release": (*command).inboxRelease,
		"inbox.decisions": (*command).inboxDecisions,
		"threads.create":  (*command).threadsCreate, "threads.get": (*command).threadsGet,
		"threads.list": (*command).threadsList, "threads.update": (*command).threadsUpdate,
		"threads.delete": (*command).threadsDelete, "threads.messages": (*command).threadsMessages,
		"threads.working_memory":        (*command).workingMemory,
		"threads.update_working_memory": (*command).updateWorkingMemory,
	}
}

func (c *command) hello() (any, error) {
	ops := []string{}
	for op := range operations {
		ops = append(ops, op)
	}
	sort.Strings(ops)
	return map[string]any{"protocol": 1, "language": "go", "version": entracte.Version, "ops": ops}, nil
}

func (c *command) connect() (any, error) {
	var settings []entracte.ClientOption
	if c.asked.APIKey != "" {
		settings = append(settings, entracte.WithAPIKey(c.asked.APIKey))
	}
	if c.asked.CACertificates != "" {
		pem, err := os.ReadFile(c.asked.CACertificates)
		if err != nil {
			return nil, err
		}
		settings = append(settings, entracte.WithRootCertificates(pem))
	}
	if c.asked.Timeout != nil {
		settings = append(settings, entracte.WithTimeout(duration(*c.asked.Timeout)))
	}
	if c.asked.ReattachTimeout != nil {
		settings = append(settings, entracte.WithReattachTimeout(duration(*c.asked.ReattachTimeout)))
	}
	client, err := entracte.NewClient(c.asked.Address, settings...)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients[c.asked.Client] = client
	return nil, nil
}

// client is the client that the command names.
func (c *command) client() (*entracte.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	client := c.clients[c.asked.Client]
	if client == nil {
		return nil, usage("no client is called " + c.asked.Client)
	}
	return client, nil
}

func (c *command) close() (any, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	delete(c.clients, c.asked.Client)
	c.mu.Unlock()
	return nil, client.Close()
}

func (c *command) target() *command {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[c.asked.Target]
}

func (c *command) cancelTarget() (any, error) {
	if target := c.target(); target != nil {
		target.cancel()
	}
	return nil, nil
}

func (c *command) pullTarget() (any, error) {
	if target := c.target(); target != nil {
		target.allow(c.asked.Count)
	}
	return nil, nil
}

func (c *command) generate() (any, error) {
	client, given, list, err := c.started()
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.bounded(given.Timeout)
	defer cancel()
	result, err := client.Agent(c.asked.Agent).Generate(ctx, entracte.Text(c.asked.Input), list...)
	return c.report(result, err)
}

func (c *command) stream() (any, error) {
	client, given, list, err := c.started()
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.bounded(given.Timeout)
	defer cancel()
	return c.follow(client.Agent(c.asked.Agent).StreamRun(ctx, entracte.Text(c.asked.Input), list...))
}

func (c *command) started() (*entracte.Client, *options, []entracte.GenerateOption, error) {
	client, err := c.client()
	if err != nil {
		return nil, nil, nil, err
	}
	given, err := c.asked.read()
	if err != nil {
		return nil, nil, nil, err
	}
	list, err := given.generate()
	for _, extra := range c.extras() {
		list = append(list, extra)
	}
	return client, given, list, err
}

// extras are the observers and client tools that are asked for.
func (c *command) extras() []entracte.StreamOption {
	var list []entracte.StreamOption
	if len(c.asked.Observe) > 0 {
		list = append(list, entracte.WithCallbacks(c.callbacks()))
	}
	for _, described := range c.asked.ClientTools {
		given := entracte.ClientTool{
			Name: described.Name, Description: described.Description, InputSchema: optional(described.InputSchema),
		}
		if does := described.Function; does != nil {
			given.Func = func(_ context.Context, args entracte.JSON) (any, error) {
				c.write("event", map[string]any{
					"name": "client-tool", "value": map[string]any{"tool": described.Name, "args": jvalue(args)},
				})
				switch {
				case does.Raises != nil:
					return nil, errors.New(*does.Raises)
				case does.Echo:
					return args, nil
				}
				return entracte.JSON(*does.Returns), nil
			}
		}
		list = append(list, entracte.WithClientTools(given))
	}
	return list
}

func (c *command) callbacks() entracte.Callbacks {
	event := func(name string, value map[string]any) {
		c.write("event", map[string]any{"name": name, "value": value})
		if c.asked.ObserverRaises {
			panic("an observer that panics")
		}
	}
	var found entracte.Callbacks
	for _, name := range c.asked.Observe {
		switch name {
		case "on_chunk":
			found.OnChunk = func(chunk entracte.Chunk) {
				event(name, map[string]any{"type": chunk.Header().Type, "sequence": chunk.Header().Sequence})
			}
		case "on_step_finish":
			found.OnStepFinish = func(step *entracte.StepResult) {
				event(name, map[string]any{"step": step.Step, "text": step.Text})
			}
		case "on_finish":
			found.OnFinish = func(result *entracte.GenerateResult) {
				event(name, map[string]any{"text": result.Text, "finish_reason": result.FinishReason})
			}
		case "on_error":
			found.OnError = func(err error) {
				var failed *entracte.RunError
				if errors.As(err, &failed) {
					event(name, map[string]any{"kind": failed.Kind})
				} else {
					event(name, failure(err))
				}
			}
		case "on_abort":
			found.OnAbort = func(abort *entracte.AbortChunk) { event(name, map[string]any{"reason": abort.Reason}) }
		}
	}
	return found
}

// follow reads a run's stream to its end, or as far as is asked.
func (c *command) follow(stream *entracte.RunStream) (any, error) {
	left, err := elements(c, stream.Chunks())
	if err != nil {
		return nil, err
	}
	found := map[string]any{
		"run_id": stream.RunID(), "position": stream.Position(), "text": stream.Text(), "left": left,
		"usage": written(stream.Fold().Usage()), "decision": written(stream.Decision()), "result": nil,
	}
	if !left {
		if found["result"], err = c.report(stream.Result()); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// elements writes the elements of a stream; left tells that it was left before its end.
func elements[T any](c *command, source iter.Seq2[T, error]) (left bool, err error) {
	next, stop := iter.Pull2(source)
	defer stop()
	for count := 0; c.asked.LeaveAfter == nil || count < *c.asked.LeaveAfter; count++ {
		if err := c.turn(); err != nil {
			return false, err
		}
		element, err, more := next()
		if !more || err != nil {
			return false, err
		}
		item, _ := c.report(element, nil)
		c.write("item", item)
	}
	return true, nil
}

func (c *command) decide() (any, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	given, err := c.asked.read()
	if err != nil {
		return nil, err
	}
	call, err := c.call()
	if err != nil {
		return nil, err
	}
	list := given.decide()
	for _, extra := range c.extras() {
		list = append(list, extra)
	}
	ctx, cancel := c.bounded(given.Timeout)
	defer cancel()
	stream, err := c.decision(ctx, client.Agent(c.asked.Agent), call, list)
	if err != nil {
		return nil, err
	}
	if c.asked.Stream {
		return c.follow(stream())
	}
	return c.report(c.made(ctx, client.Agent(c.asked.Agent), call, list))
}

// decision makes the stream of a decision, when it is called.
func (c *command) decision(
	ctx context.Context, agent *entracte.Agent, call entracte.Call, list []entracte.DecisionOption,
) (func() *entracte.RunStream, error) {
	switch c.asked.Op {
	case "approve":
		return func() *entracte.RunStream { return agent.ApproveStream(ctx, call, c.edited(list)...) }, nil
	case "decline":
		return func() *entracte.RunStream {
			return agent.DeclineStream(ctx, call, c.asked.Reason, c.explained(list)...)
		}, nil
	case "resume":
		if c.asked.Answer == nil {
			return nil, errNoAnswer
		}
		return func() *entracte.RunStream { return agent.ResumeStream(ctx, call, optional(c.asked.Answer), list...) }, nil
	}
	return func() *entracte.RunStream { return agent.SubmitToolResultStream(ctx, call, c.submitted(), list...) }, nil
}

// made makes a decision and waits for what comes of it.
func (c *command) made(
	ctx context.Context, agent *entracte.Agent, call entracte.Call, list []entracte.DecisionOption,
) (*entracte.GenerateResult, error) {
	switch c.asked.Op {
	case "approve":
		return agent.Approve(ctx, call, c.edited(list)...)
	case "decline":
		return agent.Decline(ctx, call, c.asked.Reason, c.explained(list)...)
	case "resume":
		return agent.Resume(ctx, call, optional(c.asked.Answer), list...)
	}
	return agent.SubmitToolResult(ctx, call, c.submitted(), list...)
}

func (c *command) edited(list []entracte.DecisionOption) []entracte.DecisionOption {
	if c.asked.EditedArgs != nil {
		list = append(list, entracte.WithEditedArgs(entracte.JSON(*c.asked.EditedArgs)))
	}
	return list
}

func (c *command) explained(list []entracte.DecisionOption) []entracte.DecisionOption {
	if c.asked.ReasonData != nil {
		list = append(list, entracte.WithReasonData(entracte.JSON(*c.asked.ReasonData)))
	}
	return list
}

func (c *command) submitted() any {
	if c.asked.Error != nil {
		return errors.New(*c.asked.Error)
	}
	return optional(c.asked.Result)
}

// call is the call that the command names.
func (c *command) call() (entracte.Call, error) {
	named := c.asked.Call
	switch {
	case named == nil:
		return nil, usage("a decision names a call")
	case named.Shown != "":
		c.mu.Lock()
		defer c.mu.Unlock()
		shown := c.shown[named.Shown]
		if shown == nil {
			return nil, usage(fmt.Sprintf("the call %s was not shown", named.Shown))
		}
		return shown, nil
	case named.PendingCallID != "":
		return entracte.PendingCallID(named.PendingCallID), nil
	}
	return entracte.RunCall{RunID: named.RunID, ToolCallID: named.ToolCallID}, nil
}

// report is what is written of a value, unless there is an error; the pending calls in it can be decided from now on.
func (c *command) report(value any, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	switch value := value.(type) {
	case *entracte.PendingCall:
		c.shown[value.PendingCallID] = value
	case *entracte.ToolCallApprovalChunk:
		c.shown[value.PendingCallID] = value
	case *entracte.ToolCallSuspendedChunk:
		c.shown[value.PendingCallID] = value
	case *entracte.GenerateResult:
		c.show(value.PendingCalls)
	case *entracte.Run:
		c.show(value.PendingCalls)
	case entracte.InboxChange:
		c.show(value.Opened)
	}
	c.mu.Unlock()
	return written(value), nil
}

func (c *command) show(calls []*entracte.PendingCall) {
	for _, call := range calls {
		c.shown[call.PendingCallID] = call
	}
}

// lists is an operation that lists: everything, or one page.
func lists[T any](
	c *command, all iter.Seq2[T, error], page func(token string) (entracte.Page[T], error),
) (any, error) {
	items := []any{}
	if c.asked.PageToken != nil {
		found, err := page(*c.asked.PageToken)
		if err != nil {
			return nil, err
		}
		for _, item := range found.Items {
			reported, _ := c.report(item, nil)
			items = append(items, reported)
		}
		return map[string]any{"items": items, "next_page_token": found.NextPageToken}, nil
	}
	for item, err := range all {
		if err != nil {
			return nil, err
		}
		reported, _ := c.report(item, nil)
		items = append(items, reported)
	}
	return map[string]any{"items": items}, nil
}
