package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// What is here says of a field's value, JSON that is not null, what is wrong with it, or
// nothing.

func isBool(v []byte) string {
	if string(v) != "true" && string(v) != "false" {
		return "it must be true or false"
	}
	return ""
}

func isString(v []byte) string {
	if v[0] != '"' {
		return "it must be a string"
	}
	return ""
}

func isNumber(v []byte) string {
	if v[0] != '-' && (v[0] < '0' || v[0] > '9') {
		return "it must be a number"
	}
	return ""
}

// isMessages wants one message at least; what is in them the outline has.
func isMessages(v []byte) string {
	if wrong := isList(v); wrong != "" {
		return wrong
	}
	if len(bytes.TrimSpace(v[1:len(v)-1])) == 0 {
		return "it is empty; send one message at least"
	}
	return ""
}

func isList(v []byte) string {
	if v[0] != '[' {
		return "it must be a list"
	}
	return ""
}

// whole reads a whole number of at most 9 digits.
func whole(v []byte) (n int, ok bool) {
	neg := len(v) > 0 && v[0] == '-'
	if neg {
		v = v[1:]
	}
	if len(v) == 0 || len(v) > 9 {
		return 0, false
	}
	for _, c := range v {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	if neg {
		n = -n
	}
	return n, true
}

// asDigits says how a number is written that a value may have been meant for.
func asDigits(v []byte) string {
	switch {
	case isNumber(v) != "":
		return ""
	case bytes.ContainsAny(v, ".eE"):
		return ", written without a point and without an exponent"
	case len(v) > 9:
		return ", of nine digits at most"
	}
	return ""
}

func wholeFrom(least int) func([]byte) string {
	return func(v []byte) string {
		if n, ok := whole(v); !ok || n < least {
			return fmt.Sprintf("it must be a whole number from %d on%s", least, asDigits(v))
		}
		return ""
	}
}

// isPredict takes how many tokens to answer with, as llama-server has it. To 0 it answers
// with one.
func isPredict(v []byte) string {
	if n, ok := whole(v); !ok || n < 1 && n != -1 {
		return "it must be a whole number from 1 on, or -1 for as many as fit"
	}
	return ""
}

func wholeBetween(least, most int) func([]byte) string {
	return func(v []byte) string {
		if n, ok := whole(v); !ok || n < least || n > most {
			return fmt.Sprintf("it must be a whole number from %d to %d%s", least, most, asDigits(v))
		}
		return ""
	}
}

func only(value, otherwise string) func([]byte) string {
	return func(v []byte) string {
		if string(v) != value {
			return otherwise
		}
		return ""
	}
}

func oneOf(words ...string) func([]byte) string {
	return func(v []byte) string {
		if v[0] != '"' || !slices.Contains(words, unquote(v)) {
			return "it must be one of: " + strings.Join(words, ", ")
		}
		return ""
	}
}

// maxStops bounds the stop strings of a request.
const maxStops = 64

func isStop(v []byte) string {
	var list []string
	switch {
	case v[0] == '"':
		list = []string{unquote(v)}
	case json.Unmarshal(v, &list) != nil || len(list) > maxStops:
		return fmt.Sprintf("it must be a string, or a list of at most %d strings", maxStops)
	}
	if slices.Contains(list, "") { // The engine would end every answer by it, at once.
		return "it holds an empty string"
	}
	return ""
}

func isStreamOptions(v []byte) string {
	var options map[string]json.RawMessage
	if json.Unmarshal(v, &options) != nil {
		return "it must be an object, such as {\"include_usage\":true}"
	}
	for name, value := range options {
		switch {
		case name != "include_usage" && name != "include_obfuscation":
			return fmt.Sprintf("there is no %q in it; there is: include_usage", clip(name, 60))
		case isBool(value) != "" && string(value) != "null":
			return name + " must be true or false"
		case name == "include_obfuscation" && string(value) == "true":
			return "relay sends no obfuscation; leave include_obfuscation out or send false"
		}
	}
	return ""
}

func isTextOnly(v []byte) string {
	var list []string
	if json.Unmarshal(v, &list) != nil || len(list) != 1 || list[0] != "text" {
		return "models here answer in text only: [\"text\"]"
	}
	return ""
}

func isTier(v []byte) string {
	if s := string(v); s != `"auto"` && s != `"default"` {
		return "there are no tiers here; leave it out"
	}
	return ""
}

func isTools(v []byte) string {
	var list []struct {
		Type     string `json:"type"`
		Function *struct {
			Name any `json:"name"`
		} `json:"function"`
	}
	if json.Unmarshal(v, &list) != nil {
		return "it must be a list of functions"
	}
	for i, t := range list {
		switch {
		case t.Type != "function":
			return fmt.Sprintf("[%d] is of the type %q; there are only functions here", i, clip(t.Type, 40))
		case t.Function == nil:
			return fmt.Sprintf("[%d] has no function", i)
		}
		if name, ok := t.Function.Name.(string); !ok || name == "" {
			return fmt.Sprintf("[%d].function has no name", i)
		}
	}
	return ""
}

func isToolChoice(v []byte) string {
	if v[0] == '{' {
		return ""
	}
	return oneOf("none", "auto", "required")(v)
}

func isResponseFormat(v []byte) string {
	var f struct {
		Type       string          `json:"type"`
		Schema     json.RawMessage `json:"schema"`
		JSONSchema *struct {
			Name   *string         `json:"name"`
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	}
	if json.Unmarshal(v, &f) != nil {
		return "it must be an object with a type: text, json_object or json_schema"
	}
	switch f.Type {
	case "text":
		return ""
	case "json_object":
		if len(f.Schema) > 0 && string(f.Schema) != "null" && f.Schema[0] != '{' {
			return "its schema must be an object"
		}
		return ""
	case "json_schema":
		if f.JSONSchema == nil || len(f.JSONSchema.Schema) == 0 || f.JSONSchema.Schema[0] != '{' {
			return "the type json_schema needs json_schema.schema, an object"
		}
		return ""
	}
	return fmt.Sprintf("its type is %q; there is: text, json_object, json_schema", clip(f.Type, 40))
}

// isPrompt takes a text, or token ids, or a list of texts and lists of ids.
func isPrompt(v []byte) string {
	const want = "it must be a string, a list of strings, token ids, or a list of token ids"
	if v[0] == '"' {
		return ""
	}
	if v[0] != '[' {
		return want
	}
	switch prompts(v) {
	case 0:
		return "it is empty"
	case -1:
		return want
	}
	return ""
}

// prompts is how many prompts there are in a value; -1 where it is none.
func prompts(v []byte) int {
	if len(v) == 0 || v[0] != '[' {
		return 1
	}
	n, ids := 0, false
	each(v, func(e []byte) bool {
		n++
		switch {
		case e[0] >= '0' && e[0] <= '9' || e[0] == '-':
			ids = true
		case e[0] != '"' && e[0] != '[':
			n = -1
		}
		return n > 0
	})
	if ids && n > 0 { // One prompt of ids, or of ids and texts.
		return 1
	}
	return n
}

// maxInputs is how many texts one request for embeddings may bring, as at OpenAI's.
const maxInputs = 2048

func isInput(v []byte) string {
	if wrong := isPrompt(v); wrong != "" {
		return wrong
	}
	if prompts(v) > maxInputs {
		return fmt.Sprintf("it holds more than %d texts; send them in several requests", maxInputs)
	}
	empty := string(v) == `""`
	each(v, func(e []byte) bool {
		empty = string(e) == `""` || string(e) == "[]"
		return !empty
	})
	if empty {
		return "it holds an empty text"
	}
	return ""
}

func isIDs(v []byte) string {
	ids := v[0] == '['
	each(v, func(e []byte) bool {
		_, ids = whole(e)
		ids = ids && e[0] != '-'
		return ids
	})
	if !ids {
		return "it must be a list of token ids, whole numbers from 0 on"
	}
	return ""
}
