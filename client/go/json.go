package entracte

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	pb "entracte.dev/go/entracte/v1"
)

// JSON is a JSON value, kept as its exact text: integers of any size, the order of keys and the difference
// between 1 and 1.0 survive. The empty text is no value at all, which is something else than `null`.
//
// Wherever this package takes a value of any type, JSON and [json.RawMessage] are sent as they are, and
// anything else is written by encoding/json.
type JSON string

// NewJSON writes a value as JSON. It fails for what encoding/json cannot write.
func NewJSON(value any) (JSON, error) {
	switch given := value.(type) {
	case JSON:
		if given == "" {
			return "", errors.New("the empty text is no JSON value; JSON null is entracte.JSON(\"null\"), or nil")
		}
		return given, nil
	case json.RawMessage:
		return JSON(given), nil
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return "", fmt.Errorf("a value that cannot be JSON: %w", err)
	}
	return JSON(strings.TrimSuffix(text.String(), "\n")), nil
}

// Text is the exact text; empty where there is no value.
func (j JSON) Text() string { return string(j) }

// IsZero tells whether there is no value.
func (j JSON) IsZero() bool { return j == "" }

// Unmarshal reads the value into target, as [json.Unmarshal] does, except that a number that goes into an
// interface becomes a [json.Number], so that none loses digits. It fails where there is no value.
func (j JSON) Unmarshal(target any) error {
	if j == "" {
		return errors.New("there is no JSON value here")
	}
	decoder := json.NewDecoder(strings.NewReader(string(j)))
	decoder.UseNumber()
	if err := decoder.Decode(target); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something behind the JSON value")
	}
	return nil
}

// Value is the value as maps, slices, strings, booleans, [json.Number] and nil; nil, too, where there is
// no value.
func (j JSON) Value() (any, error) {
	if j == "" {
		return nil, nil
	}
	var value any
	err := j.Unmarshal(&value)
	return value, err
}

// MarshalJSON writes the value; `null` where there is none.
func (j JSON) MarshalJSON() ([]byte, error) {
	if j == "" {
		return []byte("null"), nil
	}
	return []byte(j), nil
}

// UnmarshalJSON keeps the text.
func (j *JSON) UnmarshalJSON(text []byte) error {
	*j = JSON(text)
	return nil
}

func jsonOf(message *pb.Json) JSON {
	return JSON(message.GetText())
}

func toJSON(value any) (*pb.Json, error) {
	text, err := NewJSON(value)
	if err != nil {
		return nil, err
	}
	return &pb.Json{Text: string(text)}, nil
}

// toOptionalJSON is toJSON for values of which nil, a nil map and an empty JSON mean that there is none.
func toOptionalJSON(value any) (*pb.Json, error) {
	switch given := value.(type) {
	case nil:
		return nil, nil
	case JSON:
		if given == "" {
			return nil, nil
		}
	case map[string]any:
		if given == nil {
			return nil, nil
		}
	}
	return toJSON(value)
}
