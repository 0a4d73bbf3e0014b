package entracte

import (
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"time"
)

// SchemaFor is the JSON Schema of what encoding/json reads into a type: of structs, slices, maps with string
// keys, texts, numbers, booleans, pointers (or null), [time.Time], [JSON] and interfaces (anything). A field is
// required unless its json tag has omitempty or omitzero or it is a pointer; a `description` tag describes it:
//
//	type Args struct {
//		OrderID string `json:"order_id" description:"The number of the order."`
//		Notify  bool   `json:"notify,omitempty"`
//	}
//
// It panics for other types (channels, functions, structs that contain themselves): that is a mistake in the
// program, found the first time it runs.
func SchemaFor[T any]() JSON {
	schema, err := schemaOf(reflect.TypeFor[T](), nil)
	if err != nil {
		panic("entracte.SchemaFor: " + err.Error())
	}
	text, err := NewJSON(schema)
	if err != nil {
		panic("entracte.SchemaFor: " + err.Error())
	}
	return text
}

var plainSchemas = map[reflect.Type]map[string]any{
	reflect.TypeFor[JSON]():            {},
	reflect.TypeFor[json.RawMessage](): {},
	reflect.TypeFor[json.Number]():     {"type": "number"},
	reflect.TypeFor[big.Int]():         {"type": "integer"},
	reflect.TypeFor[time.Time]():       {"type": "string", "format": "date-time"},
	reflect.TypeFor[[]byte]():          {"type": "string", "contentEncoding": "base64"},
}

func schemaOf(t reflect.Type, within []reflect.Type) (map[string]any, error) {
	if plain, is := plainSchemas[t]; is {
		return plain, nil
	}
	switch t.Kind() {
	case reflect.String:
		return map[string]any{"type": "string"}, nil
	case reflect.Bool:
		return map[string]any{"type": "boolean"}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer", "minimum": 0}, nil
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}, nil
	case reflect.Interface:
		return map[string]any{}, nil
	case reflect.Pointer:
		inner, err := schemaOf(t.Elem(), within)
		return map[string]any{"anyOf": []any{inner, map[string]any{"type": "null"}}}, err
	case reflect.Slice, reflect.Array:
		items, err := schemaOf(t.Elem(), within)
		return map[string]any{"type": "array", "items": items}, err
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return nil, fmt.Errorf("keys of a JSON object are strings, those of %s are not", t)
		}
		values, err := schemaOf(t.Elem(), within)
		return map[string]any{"type": "object", "additionalProperties": values}, err
	case reflect.Struct:
		return structSchema(t, within)
	}
	return nil, fmt.Errorf("%s has no JSON Schema here", t)
}

func structSchema(t reflect.Type, within []reflect.Type) (map[string]any, error) {
	for _, outer := range within {
		if outer == t {
			return nil, fmt.Errorf("%s contains itself: give its schema as JSON", t)
		}
	}
	properties, required := map[string]any{}, []string{}
	for _, field := range reflect.VisibleFields(t) {
		tag := field.Tag.Get("json")
		name, flags, _ := strings.Cut(tag, ",")
		if !field.IsExported() || tag == "-" || field.Anonymous && name == "" {
			continue // the fields of an embedded struct are visible fields themselves
		}
		if name == "" {
			name = field.Name
		}
		schema, err := schemaOf(field.Type, append(within, t))
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", field.Name, err)
		}
		if text := field.Tag.Get("description"); text != "" {
			described := map[string]any{"description": text}
			for key, value := range schema {
				described[key] = value
			}
			schema = described
		}
		properties[name] = schema
		if !strings.Contains(flags, "omit") && field.Type.Kind() != reflect.Pointer {
			required = append(required, name)
		}
	}
	return map[string]any{
		"type": "object", "properties": properties, "required": required, "additionalProperties": false,
	}, nil
}
