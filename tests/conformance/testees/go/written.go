package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"time"
	"unicode"

	"entracte.dev/go"
)

// The SDK's records as the protocol writes them.

var leftOut = map[string]bool{
	"response": true, "request": true, "messages": true, "remembered_messages": true, "scoring_data": true,
}

var (
	jsonType     = reflect.TypeFor[entracte.JSON]()
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
	bytesType    = reflect.TypeFor[[]byte]()
	stringType   = reflect.TypeFor[string]()
	customType   = reflect.TypeFor[entracte.CustomChunk]()
	headerType   = reflect.TypeFor[entracte.ChunkHeader]()
)

// jvalue is a JSON value: its exact text, and the native value written again.
func jvalue(value entracte.JSON) any {
	if value.IsZero() {
		return nil
	}
	native, err := value.Value()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err == nil {
		err = encoder.Encode(native)
	}
	if err != nil {
		return map[string]any{"text": value.Text(), "native": "error: " + err.Error()}
	}
	return map[string]any{"text": value.Text(), "native": strings.TrimSuffix(text.String(), "\n")}
}

// written is any value of the SDK.
func written(value any) any {
	switch value := value.(type) {
	case *entracte.GenerateResult:
		found := plain(reflect.ValueOf(value)).(map[string]any)
		found["messages"] = len(value.Messages)
		return found
	case *entracte.ThreadMessage:
		found := plain(reflect.ValueOf(value)).(map[string]any)
		found["text"] = value.Text()
		found["parts"] = parts(value.Parts)
		return found
	}
	return plain(reflect.ValueOf(value))
}

func parts(given []entracte.ThreadPart) []any {
	list := []any{}
	for _, part := range given {
		found, _ := plain(reflect.ValueOf(part)).(map[string]any)
		found["type"] = strings.ReplaceAll(snake(strings.TrimSuffix(reflect.TypeOf(part).Elem().Name(), "Part")), "_", "-")
		list = append(list, found)
	}
	return list
}

func plain(value reflect.Value) any {
	if !value.IsValid() {
		return nil
	}
	switch value.Type() {
	case jsonType:
		return jvalue(entracte.JSON(value.String()))
	case timeType:
		if at := value.Interface().(time.Time); !at.IsZero() {
			return at.Format(time.RFC3339Nano)
		}
		return nil
	case durationType:
		return time.Duration(value.Int()).Seconds()
	case bytesType:
		return hex.EncodeToString(value.Bytes())
	}
	switch value.Kind() {
	case reflect.Pointer, reflect.Interface:
		if value.IsNil() {
			return nil
		}
		if result, is := value.Interface().(*entracte.GenerateResult); is && value.Kind() == reflect.Pointer {
			found := fields(reflect.ValueOf(result).Elem())
			found["messages"] = len(result.Messages)
			return found
		}
		return plain(value.Elem())
	case reflect.Struct:
		return fields(value)
	case reflect.Slice:
		list := []any{}
		for i := range value.Len() {
			list = append(list, plain(value.Index(i)))
		}
		return list
	case reflect.String:
		if value.Type() != stringType && value.Len() == 0 { // an enumeration that is not set
			return nil
		}
		return value.String()
	}
	return value.Interface()
}

// fields are those of a struct by their names in the protocol.
func fields(value reflect.Value) map[string]any {
	found := map[string]any{}
	for i := range value.NumField() {
		field := value.Type().Field(i)
		if field.Type == headerType {
			for name, inner := range fields(value.Field(i)) {
				found[name] = inner
			}
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			name = snake(field.Name)
		}
		if value.Type() == customType && name == "id" {
			name = "custom_id"
		}
		if !leftOut[name] {
			found[name] = plain(value.Field(i))
		}
	}
	return found
}

// snake is a name in lower case with underscores: ThreadID is thread_id, NotFound is not_found.
func snake(name string) string {
	var text strings.Builder
	letters := []rune(name)
	for i, letter := range letters {
		startsWord := unicode.IsUpper(letter) && i > 0 &&
			(unicode.IsLower(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1]))
		if startsWord {
			text.WriteByte('_')
		}
		text.WriteRune(unicode.ToLower(letter))
	}
	return text.String()
}

// failure is an error, of the SDK or not.
func failure(err error) map[string]any {
	found := map[string]any{"kind": "other", "class": className(err), "message": err.Error()}
	var own usage
	if errors.As(err, &own) {
		found["kind"] = "usage"
	}
	var given *entracte.Error
	if !errors.As(err, &given) {
		return found
	}
	found["kind"] = "entracte"
	var invalid entracte.RequestInvalid
	if errors.As(err, &invalid) && given.Reason == "" { // what the SDK refuses to send
		found["kind"] = "usage"
	}
	found["code"] = strings.ToUpper(snake(given.Code.String()))
	if found["code"] == "CANCELED" {
		found["code"] = "CANCELLED"
	}
	found["reason"] = given.Reason
	found["message"] = given.Message
	found["metadata"] = given.Metadata
	violations := []any{}
	for _, violation := range given.Violations {
		violations = append(violations, map[string]any{"field": violation.Field, "description": violation.Description})
	}
	found["violations"] = violations
	if given.RetryAfter > 0 {
		found["retry_after"] = given.RetryAfter.Seconds()
	}
	return found
}

// className is the name of an error's type, with initials written as in the other languages.
func className(err error) string {
	of := reflect.TypeOf(err)
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	name := of.Name()
	if name == "Error" {
		name = "EntracteError"
	}
	return strings.NewReplacer("JSON", "Json", "ID", "Id").Replace(name)
}
