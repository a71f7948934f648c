package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// What is here checks fields of llama-server's of which the engine passes over what it
// cannot use, or reads something else in it.

// isBias takes OpenAI's object, or llama-server's list of pairs, in which a text stands for
// its tokens and false for never.
func isBias(v []byte) string {
	const want = "it must be an object of token ids with a number from -100 to 100 for each, as {\"42\":-100}"
	may := func(bias json.RawMessage) bool {
		x, err := strconv.ParseFloat(string(bias), 64)
		return err == nil && x >= -100 && x <= 100
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(v, &object) == nil {
		for id, bias := range object {
			if n, ok := whole([]byte(id)); !ok || n < 0 || !may(bias) {
				return want
			}
		}
		return ""
	}
	var list [][]json.RawMessage
	if json.Unmarshal(v, &list) != nil {
		return want
	}
	for _, pair := range list {
		if len(pair) != 2 || !may(pair[1]) && string(pair[1]) != "false" {
			return want
		}
		if n, ok := whole(pair[0]); pair[0][0] != '"' && (!ok || n < 0) {
			return want
		}
	}
	return ""
}

func isSeed(v []byte) string {
	if _, err := strconv.ParseInt(string(v), 10, 64); err != nil {
		return "it must be a whole number"
	}
	return ""
}

// samplers are those that the engine knows.
var samplers = []string{"adaptive_p", "dry", "infill", "min_p", "penalties", "temperature", "top_k", "top_n_sigma", "top_p", "typ_p", "xtc"}

func isSamplers(v []byte) string {
	var list []string
	if json.Unmarshal(v, &list) != nil {
		return "it must be a list of strings"
	}
	for _, name := range list {
		if !slices.Contains(samplers, name) {
			return fmt.Sprintf("there is no sampler %q; there is: %s", clip(name, 40), strings.Join(samplers, ", "))
		}
	}
	return ""
}

func isObject(v []byte) string {
	if v[0] != '{' {
		return "it must be an object"
	}
	return ""
}
