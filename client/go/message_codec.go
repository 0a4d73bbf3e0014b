package entracte

import (
	"fmt"

	pb "entracte.dev/go/entracte/v1"
)

// toMessages writes messages; bare texts get the role.
func toMessages(input Input, role Role) ([]*pb.Message, error) {
	if input == nil {
		return nil, fmt.Errorf("messages are needed: an entracte.Text, a Message or Messages")
	}
	var written []*pb.Message
	for _, message := range input.messages(role) {
		converted, err := toMessage(message)
		if err != nil {
			return nil, err
		}
		written = append(written, converted)
	}
	return written, nil
}

func toMessage(message Message) (*pb.Message, error) {
	role, err := numberOf[pb.Role](pb.Role_value, "ROLE_", message.Role, "a message's role")
	if err != nil {
		return nil, err
	}
	written := &pb.Message{Role: role, Metadata: wireJSON(message.Metadata), Id: message.ID}
	for _, part := range message.Parts {
		converted, err := toPart(part)
		if err != nil {
			return nil, err
		}
		written.Parts = append(written.Parts, converted)
	}
	return written, nil
}

func toPart(part MessagePart) (*pb.MessagePart, error) {
	switch part := part.(type) {
	case *TextPart:
		said := &pb.TextPart{Text: part.Text, ProviderMetadata: wireJSON(part.ProviderMetadata)}
		return &pb.MessagePart{Part: &pb.MessagePart_Text{Text: said}}, nil
	case *ImagePart:
		image := &pb.ImagePart{MediaType: part.MediaType}
		if len(part.Data) > 0 {
			image.Source = &pb.ImagePart_Data{Data: part.Data}
		} else {
			image.Source = &pb.ImagePart_Url{Url: part.URL}
		}
		return &pb.MessagePart{Part: &pb.MessagePart_Image{Image: image}}, nil
	case *FilePart:
		file := &pb.FilePart{MediaType: part.MediaType, Filename: part.Filename}
		if len(part.Data) > 0 {
			file.Source = &pb.FilePart_Data{Data: part.Data}
		} else {
			file.Source = &pb.FilePart_Url{Url: part.URL}
		}
		return &pb.MessagePart{Part: &pb.MessagePart_File{File: file}}, nil
	case *ToolCallPart:
		call := &pb.ToolCallPart{
			ToolCallId:       part.ToolCallID,
			ToolName:         part.ToolName,
			Args:             wireJSON(part.Args),
			ProviderMetadata: wireJSON(part.ProviderMetadata),
		}
		return &pb.MessagePart{Part: &pb.MessagePart_ToolCall{ToolCall: call}}, nil
	case *ToolResultPart:
		result := &pb.ToolResultPart{
			ToolCallId: part.ToolCallID,
			ToolName:   part.ToolName,
			Result:     wireJSON(part.Result),
			IsError:    part.IsError,
		}
		return &pb.MessagePart{Part: &pb.MessagePart_ToolResult{ToolResult: result}}, nil
	case *ReasoningPart:
		thinking := &pb.ReasoningPart{
			Text:             part.Text,
			Signature:        part.Signature,
			Redacted:         part.Redacted,
			ProviderMetadata: wireJSON(part.ProviderMetadata),
		}
		return &pb.MessagePart{Part: &pb.MessagePart_Reasoning{Reasoning: thinking}}, nil
	}
	return nil, fmt.Errorf("a part of a message is a pointer to a TextPart, ImagePart, FilePart, ToolCallPart, "+
		"ToolResultPart or ReasoningPart, not %T", part)
}

// wireJSON is a JSON value for the wire; none where there is none.
func wireJSON(value JSON) *pb.Json {
	if value == "" {
		return nil
	}
	return &pb.Json{Text: string(value)}
}

func roleOf(role pb.Role) Role { return nameOf[Role](role, "ROLE_") }

// messageOf reads a message. Parts that this version does not know are left out.
func messageOf(message *pb.Message) Message {
	read := Message{Role: roleOf(message.Role), Metadata: jsonOf(message.Metadata), ID: message.Id}
	for _, part := range message.Parts {
		if known := partOf(part); known != nil {
			read.Parts = append(read.Parts, known)
		}
	}
	return read
}

func partOf(part *pb.MessagePart) MessagePart {
	switch part := part.Part.(type) {
	case *pb.MessagePart_Text:
		return textPartOf(part.Text)
	case *pb.MessagePart_Image:
		return imageOf(part.Image)
	case *pb.MessagePart_File:
		return fileOf(part.File)
	case *pb.MessagePart_ToolCall:
		call := part.ToolCall
		return &ToolCallPart{call.ToolCallId, call.ToolName, jsonOf(call.Args), jsonOf(call.ProviderMetadata)}
	case *pb.MessagePart_ToolResult:
		result := part.ToolResult
		return &ToolResultPart{result.ToolCallId, result.ToolName, jsonOf(result.Result), result.IsError}
	case *pb.MessagePart_Reasoning:
		return reasoningOf(part.Reasoning)
	}
	return nil
}

func textPartOf(part *pb.TextPart) *TextPart {
	return &TextPart{part.Text, jsonOf(part.ProviderMetadata)}
}

func imageOf(part *pb.ImagePart) *ImagePart {
	return &ImagePart{part.GetUrl(), part.GetData(), part.MediaType}
}

func fileOf(part *pb.FilePart) *FilePart {
	return &FilePart{part.GetUrl(), part.GetData(), part.MediaType, part.Filename}
}

func reasoningOf(part *pb.ReasoningPart) *ReasoningPart {
	return &ReasoningPart{part.Text, part.Signature, part.Redacted, jsonOf(part.ProviderMetadata)}
}
