package entracte

import (
	"fmt"
	"math"

	pb "entracte.dev/go/entracte/v1"
)

// GenerateOption is an option of [Agent.Generate], [Agent.Stream] and [Agent.StreamRun].
//
// What is not given is left to the agent's own setting, then to the server's default. The options are stored
// with the run and hold over every suspension; only callbacks and the functions of client tools live in the
// caller's process and are given again with a decision.
type GenerateOption interface{ generate(*generation) }

// DecisionOption is an option of the decisions: [Agent.Approve], [Agent.Decline], [Agent.Resume],
// [Agent.SubmitToolResult] and their streams.
type DecisionOption interface{ decide(*deciding) }

// WatchOption is an option of [RunsClient.Watch] and [RunsClient.WatchRun].
type WatchOption interface{ watch(*watching) }

// RequestOption is an option of everything that changes something for an agent's run.
type RequestOption interface {
	GenerateOption
	DecisionOption
}

// StreamOption is an option of everything that follows a run.
type StreamOption interface {
	GenerateOption
	DecisionOption
	WatchOption
}

// generation is what the options of a new run add up to.
type generation struct {
	requesting
	options pb.GenerateOptions
	err     error
}

// requesting is what requests have in common.
type requesting struct {
	following
	requestID   string
	traceparent string
}

// following is what happens in the caller's process while a run is followed.
type following struct {
	callbacks Callbacks
	tools     []ClientTool
}

// deciding is what the options of a decision add up to.
type deciding struct {
	requesting
	onBehalfOf string
	comment    string
	// Of one verb only.
	editedArgs any
	reasonData any
	edited     bool
	explained  bool
}

// watching is what the options of a watch add up to.
type watching struct {
	following
	untilFinished bool
}

type (
	generateOption func(*generation)
	decisionOption func(*deciding)
	watchOption    func(*watching)
	requestOption  func(*requesting)
	streamOption   func(*following)
)

func (o generateOption) generate(g *generation) { o(g) }
func (o decisionOption) decide(d *deciding)     { o(d) }
func (o watchOption) watch(w *watching)         { o(w) }
func (o requestOption) generate(g *generation)  { o(&g.requesting) }
func (o requestOption) decide(d *deciding)      { o(&d.requesting) }
func (o streamOption) generate(g *generation)   { o(&g.following) }
func (o streamOption) decide(d *deciding)       { o(&d.following) }
func (o streamOption) watch(w *watching)        { o(&w.following) }

// clientToolOption declares tools for a new run, and has their functions called wherever a run is followed.
type clientToolOption struct {
	streamOption
	tools []ClientTool
}

func (o clientToolOption) generate(g *generation) {
	o.streamOption(&g.following)
	for _, tool := range o.tools {
		schema, err := toOptionalJSON(tool.InputSchema)
		g.check("client_tools", err)
		g.options.ClientTools = append(g.options.ClientTools, &pb.ClientTool{
			Name: tool.Name, Description: tool.Description, InputSchema: schema,
		})
	}
}

// WithClientTools gives tools that this process executes: the run parks for their calls, their functions are
// called, and it goes on with what they return. Calls of those without a function are answered with
// [Agent.SubmitToolResult]. With a decision or a watch they are the functions for the run's client tools,
// should it call them next.
func WithClientTools(tools ...ClientTool) StreamOption {
	return clientToolOption{
		streamOption: func(f *following) { f.tools = append(f.tools, tools...) },
		tools:        tools,
	}
}

// WithCallbacks has functions told what happens while the run is followed.
func WithCallbacks(callbacks Callbacks) StreamOption {
	return streamOption(func(f *following) { f.callbacks = callbacks })
}

// WithRequestID makes the request safe to repeat from elsewhere, too: given again with the same input and
// options, it joins what it had started. The SDK makes one where this is not given.
func WithRequestID(id string) RequestOption {
	return requestOption(func(r *requesting) { r.requestID = id })
}

// WithTraceparent makes the run a part of the caller's trace: the caller's span, as a W3C traceparent header.
func WithTraceparent(traceparent string) RequestOption {
	return requestOption(func(r *requesting) { r.traceparent = traceparent })
}

// WithOnBehalfOf says for whom the caller decides; it is kept in the audit and not verified.
func WithOnBehalfOf(principal string) DecisionOption {
	return decisionOption(func(d *deciding) { d.onBehalfOf = principal })
}

// WithComment adds a note for the audit to a decision; the model does not see it.
func WithComment(comment string) DecisionOption {
	return decisionOption(func(d *deciding) { d.comment = comment })
}

// WithEditedArgs has an approved call executed with these arguments, an object, in place of those shown. If they
// do not fit the tool's schema: [EditedArgsInvalid], and the call still waits.
func WithEditedArgs(args any) DecisionOption {
	return decisionOption(func(d *deciding) { d.editedArgs, d.edited = args, true })
}

// WithReasonData says as data, too, why a call is declined; the model is told.
func WithReasonData(reason any) DecisionOption {
	return decisionOption(func(d *deciding) { d.reasonData, d.explained = reason, true })
}

// WithUntilFinished waits through suspensions until the run has ended.
func WithUntilFinished() WatchOption {
	return watchOption(func(w *watching) { w.untilFinished = true })
}

// check keeps the first thing that is wrong with the options.
func (g *generation) check(field string, err error) {
	if err != nil && g.err == nil {
		g.err = invalid("options."+field, err)
	}
}

// int32 is a number as the contract has it.
func (g *generation) int32(field string, n int) int32 {
	if n < math.MinInt32 || n > math.MaxInt32 {
		g.check(field, fmt.Errorf("%d is out of the range of 32 bits", n))
	}
	return int32(n)
}

// json is a JSON value as the contract has it.
func (g *generation) json(field string, value any) *pb.Json {
	written, err := toOptionalJSON(value)
	g.check(field, err)
	return written
}

// messages are messages as the contract has them.
func (g *generation) messages(field string, input Input, role Role) []*pb.Message {
	written, err := toMessages(input, role)
	g.check(field, err)
	return written
}

func enumFor[Value ~int32, Name ~string](
	g *generation, field string, values map[string]int32, prefix string, name Name,
) Value {
	number, err := numberOf[Value](values, prefix, name, "it")
	g.check(field, err)
	return number
}
