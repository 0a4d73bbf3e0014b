package entracte

import (
	"context"
	"errors"
	"fmt"

	pb "entracte.dev/go/entracte/v1"
)

// Call names a call that waits: a [*PendingCall] from a result or the inbox, the chunk that announced it
// ([*ToolCallApprovalChunk], [*ToolCallSuspendedChunk]), an [OpenCall], its [PendingCallID], or a [RunCall].
type Call interface {
	// reference is what names it, and what is known of it: its run, and the digest of what was shown.
	reference() (ref *pb.CallRef, runID string, digest []byte)
}

// PendingCallID names a call by its pending call id.
type PendingCallID string

// RunCall names a call by its run, with or without the tool call. Without one it is accepted only while exactly
// one call waits and none of the run was ever decided.
type RunCall struct {
	RunID      string
	ToolCallID string
}

func byID(id string) *pb.CallRef { return &pb.CallRef{PendingCallId: id} }

func (c *PendingCall) reference() (*pb.CallRef, string, []byte) {
	return byID(c.PendingCallID), c.RunID, c.ArgsDigest
}

func (c *ToolCallApprovalChunk) reference() (*pb.CallRef, string, []byte) {
	return byID(c.PendingCallID), c.RunID, c.ArgsDigest
}

func (c *ToolCallSuspendedChunk) reference() (*pb.CallRef, string, []byte) {
	return byID(c.PendingCallID), c.RunID, c.ArgsDigest
}

func (c OpenCall) reference() (*pb.CallRef, string, []byte) { return byID(c.PendingCallID), "", nil }

func (id PendingCallID) reference() (*pb.CallRef, string, []byte) { return byID(string(id)), "", nil }

func (c RunCall) reference() (*pb.CallRef, string, []byte) {
	return &pb.CallRef{RunId: c.RunID, ToolCallId: c.ToolCallID}, c.RunID, nil
}

// outcome is what all four verbs answer.
type outcome interface {
	GetRun() *pb.Run
	GetDecision() *pb.Decision
	GetResult() *pb.GenerateResult
	GetReplayed() bool
}

// decision is a decision that can be made any number of times with the same effect. The context bounds it; with
// wait it comes back when the run has parked or ended.
type decision struct {
	deciding
	runID string
	make  func(ctx context.Context, wait bool) (outcome, error)
	err   error
}

// verb is one of the RPCs that decide, with its request made for waiting and for not waiting.
func verb[Request, Response any](
	c *connection, settings *deciding, method unary[Request, Response], request func(wait bool) *Request,
) func(context.Context, bool) (outcome, error) {
	return func(ctx context.Context, wait bool) (outcome, error) {
		response, err := call(ctx, c, method, request(wait), settings.traceparent)
		if err != nil {
			return nil, err
		}
		return any(response).(outcome), nil
	}
}

// newDecision reads the options of a decision on a call.
func newDecision(of Call, options []DecisionOption) (*decision, *pb.CallRef, []byte) {
	d := &decision{}
	for _, option := range options {
		option.decide(&d.deciding)
	}
	if d.requestID == "" {
		d.requestID = newID()
	}
	if of == nil {
		d.err = invalid("call", errors.New("name the call: a PendingCall, the chunk that announced it, its PendingCallID, or a RunCall"))
		return d, nil, nil
	}
	ref, runID, digest := of.reference()
	if ref.PendingCallId == "" && ref.RunId == "" {
		d.err = invalid("call", errors.New("the call has neither a pending call id nor a run id"))
	}
	d.runID = runID
	return d, ref, digest
}

// json is a JSON value of the request.
func (d *decision) json(field string, value any) *pb.Json {
	written, err := toJSON(value)
	if err != nil && d.err == nil {
		d.err = invalid(field, err)
	}
	return written
}

func (a *Agent) approval(of Call, options []DecisionOption) *decision {
	d, ref, digest := newDecision(of, options)
	var edited *pb.Json
	if d.edited {
		edited = d.json("edited_args", d.editedArgs)
	}
	d.only("WithReasonData", d.explained)
	d.make = verb(a.connection, &d.deciding, a.connection.agents.Approve, func(wait bool) *pb.ApproveRequest {
		return &pb.ApproveRequest{
			Call: ref, ArgsDigest: digest, EditedArgs: edited, RequestId: d.requestID, Wait: wait,
			OnBehalfOf: d.onBehalfOf, Comment: d.comment,
		}
	})
	return d
}

func (a *Agent) refusal(of Call, reason string, options []DecisionOption) *decision {
	d, ref, _ := newDecision(of, options)
	var data *pb.Json
	if d.explained {
		data = d.json("reason_json", d.reasonData)
	}
	d.only("WithEditedArgs", d.edited)
	d.make = verb(a.connection, &d.deciding, a.connection.agents.Decline, func(wait bool) *pb.DeclineRequest {
		return &pb.DeclineRequest{
			Call: ref, Reason: reason, ReasonJson: data, RequestId: d.requestID, Wait: wait,
			OnBehalfOf: d.onBehalfOf, Comment: d.comment,
		}
	})
	return d
}

func (a *Agent) answer(of Call, answer any, options []DecisionOption) *decision {
	d, ref, _ := newDecision(of, options)
	data := d.json("resume_data", answer)
	d.only("WithEditedArgs", d.edited)
	d.only("WithReasonData", d.explained)
	d.make = verb(a.connection, &d.deciding, a.connection.agents.Resume, func(wait bool) *pb.ResumeRequest {
		return &pb.ResumeRequest{
			Call: ref, ResumeData: data, RequestId: d.requestID, Wait: wait,
			OnBehalfOf: d.onBehalfOf, Comment: d.comment,
		}
	})
	return d
}

func (a *Agent) submission(of Call, result any, options []DecisionOption) *decision {
	d, ref, _ := newDecision(of, options)
	d.only("WithEditedArgs", d.edited)
	d.only("WithReasonData", d.explained)
	request := &pb.SubmitToolResultRequest{
		Call: ref, RequestId: d.requestID, OnBehalfOf: d.onBehalfOf, Comment: d.comment,
	}
	if failure, failed := result.(error); failed {
		request.Outcome = &pb.SubmitToolResultRequest_Error{Error: failure.Error()}
	} else {
		request.Outcome = &pb.SubmitToolResultRequest_Result{Result: d.json("result", result)}
	}
	d.make = verb(a.connection, &d.deciding, a.connection.agents.SubmitToolResult,
		func(wait bool) *pb.SubmitToolResultRequest {
			request.Wait = wait
			return request
		})
	return d
}

// only refuses an option of another verb.
func (d *decision) only(option string, given bool) {
	if given && d.err == nil {
		d.err = invalid("options", fmt.Errorf("%s does not go with this verb", option))
	}
}
