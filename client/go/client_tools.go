package entracte

import (
	"context"
	"fmt"
	"log/slog"

	pb "entracte.dev/go/entracte/v1"
)

// ClientTool is a tool that this process executes. [NewTool] makes one of a function with typed arguments.
type ClientTool struct {
	// Name has 1 to 64 letters, digits, _ and -, and is not one of the agent's tools.
	Name string
	// Description is what the tool does, for the model.
	Description string
	// InputSchema is the JSON Schema of the arguments, an object schema: a [JSON] text, or anything that is one as
	// JSON. Nil: no arguments.
	InputSchema any
	// Func executes a call. What it returns goes to the model as JSON; an error's text does, too. Without one the
	// caller answers with [Agent.SubmitToolResult].
	Func func(ctx context.Context, args JSON) (any, error)
}

// NewTool describes a function by the type of its arguments, a struct: see [SchemaFor]. It panics where that has
// no JSON Schema, as [SchemaFor] does.
func NewTool[Args any](name, description string, execute func(context.Context, Args) (any, error)) ClientTool {
	return ClientTool{
		Name:        name,
		Description: description,
		InputSchema: SchemaFor[Args](),
		Func: func(ctx context.Context, given JSON) (any, error) {
			var args Args
			if err := given.Unmarshal(&args); err != nil {
				return nil, fmt.Errorf("the arguments do not fit: %w", err)
			}
			return execute(ctx, args)
		},
	}
}

// execute runs a client tool's function and makes the request that hands in what it came to. What it panics with
// is an outcome, too: the model is told that the tool failed, the log has the rest.
func execute(ctx context.Context, log *slog.Logger, tool ClientTool, pendingCallID string, args JSON) *pb.SubmitToolResultRequest {
	request := &pb.SubmitToolResultRequest{Call: byID(pendingCallID), RequestId: newID()}
	if args == "" {
		args = "{}"
	}
	value, err := guarded(ctx, log, tool, args)
	var result *pb.Json
	if err == nil {
		if result, err = toJSON(value); err != nil {
			log.Warn("entracte: a client tool returned something that is not JSON", "tool", tool.Name, "error", err)
			err = fmt.Errorf("the tool returned something that is not JSON: %w", err)
		}
	}
	if err != nil {
		request.Outcome = &pb.SubmitToolResultRequest_Error{Error: err.Error()}
	} else {
		request.Outcome = &pb.SubmitToolResultRequest_Result{Result: result}
	}
	return request
}

func guarded(ctx context.Context, log *slog.Logger, tool ClientTool, args JSON) (value any, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			log.Error("entracte: a client tool panicked", "tool", tool.Name, "panic", fault)
			err = fmt.Errorf("the tool failed")
		}
	}()
	return tool.Func(ctx, args)
}
