package sim

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// field and object are JSON whose keys keep their order, as llama-server's do.
type field struct {
	key   string
	value any
}

type object []field

func (o object) MarshalJSON() ([]byte, error) { return appendJSON(nil, o) }

// encode is JSON without Go's HTML escapes, which llama-server does not write.
func encode(v any) ([]byte, error) { return appendJSON(make([]byte, 0, 512), v) }

// appendJSON writes what the answers are made of by itself, which is several
// times faster than to ask every object in them for its JSON, and leaves the
// rest to encoding/json.
func appendJSON(b []byte, v any) ([]byte, error) {
	var err error
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case float64:
		at := len(b)
		b = strconv.AppendFloat(b, v, 'f', -1, 64)
		if bytes.IndexByte(b[at:], '.') < 0 {
			b = append(b, ".0"...) // a real number, which llama-server shows
		}
		return b, nil
	case string:
		return appendString(b, v)
	case object:
		b = append(b, '{')
		for i, f := range v {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendString(b, f.key); err != nil {
				return nil, err
			}
			if b, err = appendJSON(append(b, ':'), f.value); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	case []object:
		return appendList(b, v)
	case []int:
		return appendList(b, v)
	case []float64:
		return appendList(b, v)
	default:
		return appendOther(b, v)
	}
}

func appendList[T any](b []byte, list []T) ([]byte, error) {
	b = append(b, '[')
	for i, e := range list {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = appendJSON(b, e); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func appendString(b []byte, s string) ([]byte, error) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return appendOther(b, s)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"'), nil
}

func appendOther(b []byte, v any) ([]byte, error) {
	var w bytes.Buffer
	e := json.NewEncoder(&w)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return append(b, bytes.TrimSuffix(w.Bytes(), []byte("\n"))...), nil
}
