package entracte

import "strings"

// Input is what a run is given, and what other messages are given as: a [Text], a [Message] or [Messages].
type Input interface {
	// messages are the messages it means; a bare text gets the role.
	messages(role Role) []Message
}

// Text is one message of plain text: a user's where a run is given it, a system message among instructions.
type Text string

func (t Text) messages(role Role) []Message {
	return []Message{{Role: role, Parts: []MessagePart{&TextPart{Text: string(t)}}}}
}

// Messages are several messages, in order.
type Messages []Message

func (m Messages) messages(Role) []Message { return m }

// Message is one turn of a conversation.
type Message struct {
	Role Role
	// Parts are what is said, in order. At least one.
	Parts []MessagePart
	// Metadata is kept beside the message, an object, and never shown to a model.
	Metadata JSON
	// ID is made by the server where empty.
	ID string
}

func (m Message) messages(Role) []Message { return []Message{m} }

// Text is the text parts, one after the other.
func (m Message) Text() string {
	var text strings.Builder
	for _, part := range m.Parts {
		if said, is := part.(*TextPart); is {
			text.WriteString(said.Text)
		}
	}
	return text.String()
}

// User is a user's message of these parts.
func User(parts ...MessagePart) Message { return Message{Role: RoleUser, Parts: parts} }

// MessagePart is a piece of a message: a pointer to one of the types that end in Part.
type MessagePart interface{ messagePart() }

// TextPart is plain text. ProviderMetadata goes back to the provider unchanged.
type TextPart struct {
	Text             string
	ProviderMetadata JSON
}

// ImagePart is a picture: its URL (handed to the model's provider, the server fetches nothing), or its Data
// with a MediaType such as image/png.
type ImagePart struct {
	URL       string
	Data      []byte
	MediaType string
}

// FilePart is a file: its URL (handed to the model's provider), or its Data with a MediaType.
type FilePart struct {
	URL       string
	Data      []byte
	MediaType string
	Filename  string
}

// ToolCallPart is a tool call the model made. ProviderMetadata goes back to the provider unchanged.
type ToolCallPart struct {
	ToolCallID       string
	ToolName         string
	Args             JSON
	ProviderMetadata JSON
}

// ToolResultPart is the answer to a tool call. Every tool call in a history needs exactly one.
type ToolResultPart struct {
	ToolCallID string
	ToolName   string
	Result     JSON
	IsError    bool
}

// ReasoningPart is what the model thought before it spoke. Signature, Redacted (nil where there is none) and
// ProviderMetadata go back to the provider unchanged.
type ReasoningPart struct {
	Text             string
	Signature        *string
	Redacted         *string
	ProviderMetadata JSON
}

func (*TextPart) messagePart()       {}
func (*ImagePart) messagePart()      {}
func (*FilePart) messagePart()       {}
func (*ToolCallPart) messagePart()   {}
func (*ToolResultPart) messagePart() {}
func (*ReasoningPart) messagePart()  {}
