package api

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxTold bounds each text of another peer's that is shown to people, in bytes.
const maxTold = 512

// told leaves of another peer's text what a terminal may show.
func told(text string) string {
	end := min(len(text), maxTold)
	for end < len(text) && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return -1
	}, text[:end]))
}

// decodeTold decodes another peer's answer, which people are shown, with every text in
// it as told leaves it.
func decodeTold(data []byte, v any) error {
	var tree any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return err
	}
	return json.Unmarshal(encodeJSON(toldTree(tree)), v)
}

func toldTree(tree any) any {
	switch t := tree.(type) {
	case string:
		return told(t)
	case []any:
		for i := range t {
			t[i] = toldTree(t[i])
		}
	case map[string]any:
		of := make(map[string]any, len(t))
		for name, value := range t {
			of[told(name)] = toldTree(value)
		}
		return of
	}
	return tree
}
