package entracte

import (
	"strings"
	"time"

	pb "entracte.dev/go/entracte/v1"
)

// Thread is a conversation as it is kept.
type Thread struct {
	ThreadID     string
	ResourceID   string
	Title        string
	Metadata     JSON
	CreateTime   time.Time
	UpdateTime   time.Time
	MessageCount uint64
	// ActiveRunID is the run that has it, which may be parked; empty where it is free.
	ActiveRunID    string
	ActiveRunState RunState
	// QueuedRuns is how many runs wait for it.
	QueuedRuns int
}

// ThreadMessage is one message of a thread.
type ThreadMessage struct {
	ID string
	// Position counts from 1.
	Position uint64
	Role     Role
	Parts    []ThreadPart
	// Author is the principal who sent it, or the id of the agent that answered.
	Author     string
	CreateTime time.Time
	RunID      string
	// Step is 0 for what was said to the agent.
	Step     int
	Metadata JSON
	// Aborted tells that the answer was cut off.
	Aborted bool
	// OmittedParts is how many parts are missing here, as it is larger than a response may be; the run has them.
	OmittedParts int
}

// Text is the text parts, one after the other.
func (m *ThreadMessage) Text() string {
	var text strings.Builder
	for _, part := range m.Parts {
		if said, is := part.(*TextPart); is {
			text.WriteString(said.Text)
		}
	}
	return text.String()
}

// ToolInvocations are the tool calls of it.
func (m *ThreadMessage) ToolInvocations() []*ToolInvocationPart {
	var calls []*ToolInvocationPart
	for _, part := range m.Parts {
		if call, is := part.(*ToolInvocationPart); is {
			calls = append(calls, call)
		}
	}
	return calls
}

// ThreadPart is a piece of a message of a thread: a pointer to a [TextPart], [ReasoningPart], [ImagePart],
// [FilePart], [ToolInvocationPart], [SourcePart], [ErrorPart] or [DataPart].
type ThreadPart interface{ threadPart() }

// ToolInvocationPart is a tool call with what came of it.
type ToolInvocationPart struct {
	ToolCallID string
	ToolName   string
	Args       JSON
	State      ToolInvocationState
	// Result is what the tool returned, where it did.
	Result JSON
	// Error is what the model was told where there is no result, or why it was declined.
	Error string
}

// SourcePart is something the model cited.
type SourcePart struct {
	ID    string
	URL   string
	Title string
}

// ErrorPart is why there is no more of an answer. Code is what a [RunError] calls Kind.
type ErrorPart struct {
	Code    string
	Message string
}

// DataPart is data under a name; "object" for the object of a structured answer.
type DataPart struct {
	Name string
	Data JSON
}

func (*TextPart) threadPart()           {}
func (*ReasoningPart) threadPart()      {}
func (*ImagePart) threadPart()          {}
func (*FilePart) threadPart()           {}
func (*ToolInvocationPart) threadPart() {}
func (*SourcePart) threadPart()         {}
func (*ErrorPart) threadPart()          {}
func (*DataPart) threadPart()           {}

// WorkingMemory is what agents noted down for later runs, of a thread or of a resource; the other id is empty.
type WorkingMemory struct {
	ThreadID   string
	ResourceID string
	// Content is markdown, or the text of a JSON object, as the agent's working memory says; empty where nothing
	// was noted.
	Content string
	// Version grows with every change, from 1; it is 0 where there was none.
	Version    uint64
	UpdateTime time.Time
}

func threadOf(m *pb.Thread) *Thread {
	return &Thread{
		ThreadID:       m.GetThreadId(),
		ResourceID:     m.GetResourceId(),
		Title:          m.GetTitle(),
		Metadata:       jsonOf(m.GetMetadata()),
		CreateTime:     timeOf(m.GetCreateTime()),
		UpdateTime:     timeOf(m.GetUpdateTime()),
		MessageCount:   m.GetMessageCount(),
		ActiveRunID:    m.GetActiveRunId(),
		ActiveRunState: runStateOf(m.GetActiveRunState()),
		QueuedRuns:     int(m.GetQueuedRuns()),
	}
}

func workingMemoryOf(m *pb.WorkingMemory) *WorkingMemory {
	return &WorkingMemory{
		ThreadID:   m.GetThreadId(),
		ResourceID: m.GetResourceId(),
		Content:    m.GetContent(),
		Version:    m.GetVersion(),
		UpdateTime: timeOf(m.GetUpdateTime()),
	}
}

// threadMessageOf reads a message of a thread. Parts that this version does not know are left out.
func threadMessageOf(m *pb.ThreadMessage) *ThreadMessage {
	message := &ThreadMessage{
		ID:           m.Id,
		Position:     m.Position,
		Role:         roleOf(m.Role),
		Author:       m.Author,
		CreateTime:   timeOf(m.CreateTime),
		RunID:        m.RunId,
		Step:         int(m.Step),
		Metadata:     jsonOf(m.Metadata),
		Aborted:      m.Aborted,
		OmittedParts: int(m.OmittedParts),
	}
	for _, part := range m.Parts {
		if known := threadPartOf(part); known != nil {
			message.Parts = append(message.Parts, known)
		}
	}
	return message
}

func threadPartOf(part *pb.ThreadPart) ThreadPart {
	switch part := part.Part.(type) {
	case *pb.ThreadPart_Text:
		return textPartOf(part.Text)
	case *pb.ThreadPart_Reasoning:
		return reasoningOf(part.Reasoning)
	case *pb.ThreadPart_Image:
		return imageOf(part.Image)
	case *pb.ThreadPart_File:
		return fileOf(part.File)
	case *pb.ThreadPart_ToolInvocation:
		call := part.ToolInvocation
		return &ToolInvocationPart{
			ToolCallID: call.ToolCallId,
			ToolName:   call.ToolName,
			Args:       jsonOf(call.Args),
			State:      nameOf[ToolInvocationState](call.State, "TOOL_INVOCATION_STATE_"),
			Result:     jsonOf(call.Result),
			Error:      call.Error,
		}
	case *pb.ThreadPart_Source:
		return &SourcePart{part.Source.Id, part.Source.Url, part.Source.Title}
	case *pb.ThreadPart_Error:
		return &ErrorPart{part.Error.Code, part.Error.Message}
	case *pb.ThreadPart_Data:
		return &DataPart{part.Data.Name, jsonOf(part.Data.Data)}
	}
	return nil
}
