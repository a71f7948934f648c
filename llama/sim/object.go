package sim

import (
	"bytes"
	"encoding/json"
)

// field and object are JSON whose keys keep their order, as llama-server's do.
type field struct {
	key   string
	value any
}

type object []field

func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		for j, v := range []any{f.key, f.value} {
			if j == 1 {
				b.WriteByte(':')
			}
			e, err := encode(v)
			if err != nil {
				return nil, err
			}
			b.Write(e)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// encode is JSON without Go's HTML escapes, which llama-server does not write.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
