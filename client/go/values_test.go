package entracte_test

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"entracte.dev/go"
)

func contextFor(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(context.Background(), limit)
}

func TestJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value any
		text  entracte.JSON
	}{
		{nil, "null"}, {"<a&b>", `"<a&b>"`}, {entracte.JSON("1.0"), "1.0"}, {json.RawMessage(`{"b":1,"a":2}`), `{"b":1,"a":2}`},
		{map[string]any{"n": entracte.JSON("18446744073709551616"), "none": entracte.JSON("")}, `{"n":18446744073709551616,"none":null}`},
	} {
		equal(t, "the text", must(entracte.NewJSON(c.value))(t), c.text)
	}
	for what, value := range map[string]any{"no value": entracte.JSON(""), "NaN": math.NaN(), "a function": func() {}} {
		if text, err := entracte.NewJSON(value); err == nil {
			t.Errorf("%s becomes %s", what, text)
		}
	}
	var read struct{ N any }
	equal(t, "an error", entracte.JSON(`{"N": 18446744073709551617.50}`).Unmarshal(&read), nil)
	equal(t, "the number", read.N, any(json.Number("18446744073709551617.50")))
	if err := entracte.JSON(`{} {}`).Unmarshal(&read); err == nil {
		t.Error("two values are read as one")
	}
	if err := entracte.JSON("").Unmarshal(&read); err == nil {
		t.Error("no value is read")
	}
	equal(t, "no value", must(entracte.JSON("").Value())(t), nil)
	chunk := &entracte.CustomChunk{ChunkHeader: entracte.ChunkHeader{Type: entracte.TypeCustom}, Name: "n", Data: "[1]"}
	var written map[string]any
	equal(t, "an error", json.Unmarshal(must(json.Marshal(chunk))(t), &written), nil)
	equal(t, "the type", written["type"], any("custom"))
	equal(t, "the name", written["name"], any("n"))
}

func TestSchemas(t *testing.T) {
	t.Parallel()
	type inner struct {
		At time.Time `json:"at"`
	}
	type outer struct {
		inner
		Name  string             `json:"name" description:"Who."`
		Count uint               `json:"count,omitempty"`
		Any   any                `json:"any"`
		By    map[string]float64 `json:"by"`
		List  []*inner           `json:"list"`
		Left  string             `json:"-"`
	}
	equal(t, "the schema", entracte.SchemaFor[outer](), entracte.JSON(strings.Join([]string{
		`{"additionalProperties":false,"properties":{"any":{},"at":{"format":"date-time","type":"string"},`,
		`"by":{"additionalProperties":{"type":"number"},"type":"object"},"count":{"minimum":0,"type":"integer"},`,
		`"list":{"items":{"anyOf":[{"additionalProperties":false,"properties":{"at":{"format":"date-time","type":"string"}},`,
		`"required":["at"],"type":"object"},{"type":"null"}]},"type":"array"},`,
		`"name":{"description":"Who.","type":"string"}},"required":["at","name","any","by","list"],"type":"object"}`,
	}, "")))
	defer func() {
		if fault := recover(); fault == nil {
			t.Error("a channel has a schema")
		}
	}()
	entracte.SchemaFor[struct{ C chan int }]()
}

func TestFoldDropsWhatIsVoid(t *testing.T) {
	t.Parallel()
	var fold entracte.Fold
	header := func(step, attempt int) entracte.ChunkHeader {
		return entracte.ChunkHeader{Step: step, Attempt: attempt}
	}
	delegated := header(1, 1)
	delegated.AgentPath = []entracte.PathElement{{AgentID: "child", ToolCallID: "d1"}}
	for _, chunk := range []entracte.Chunk{
		&entracte.TextDeltaChunk{ChunkHeader: header(1, 1), Text: "void"},
		&entracte.ToolCallChunk{ChunkHeader: header(1, 1), ToolCallID: "void"},
		&entracte.StepStartChunk{ChunkHeader: header(1, 2)},
		&entracte.TextDeltaChunk{ChunkHeader: header(1, 1), Text: "late"},
		&entracte.TextDeltaChunk{ChunkHeader: delegated, Text: "a child's"},
		&entracte.TextDeltaChunk{ChunkHeader: header(1, 2), Text: "good"},
		&entracte.ObjectChunk{ChunkHeader: header(1, 2), Object: `{"a":`},
	} {
		if step := fold.Add(chunk); step != nil {
			t.Errorf("%T ends a step", chunk)
		}
	}
	equal(t, "the text", fold.Text(), "good")
	equal(t, "the object so far", fold.Object(), `{"a":`)
	step := fold.Add(&entracte.StepFinishChunk{ChunkHeader: header(1, 2), Reason: entracte.FinishReasonStop})
	equal(t, "the step's text", step.Text, "good")
	equal(t, "the calls", len(step.ToolCalls), 0)
	equal(t, "an object that never was valid", fold.Object(), "")
	fold.Add(&entracte.IsTaskCompleteChunk{ChunkHeader: header(1, 2)})
	equal(t, "a draft's text", fold.Text(), "")
	fold.Add(&entracte.ErrorChunk{ChunkHeader: header(2, 1), Failure: entracte.RunError{Kind: "stall"}})
	equal(t, "the number of steps", len(fold.Steps()), 1)
	equal(t, "the error", fold.Error().Kind, "stall")
}
