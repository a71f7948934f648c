package api

import (
	"encoding/json"
	"fmt"
)

const (
	// maxGrammar bounds a grammar, in bytes.
	maxGrammar = 64 << 10
	// maxBrackets is how deep its brackets may nest: the engine's parser recurses, and
	// ends the engine where it is too deep.
	maxBrackets = 100
)

// isGrammar takes a grammar of llama.cpp's as far as the engine's parser bears it; whether
// it is one, that parser says.
func isGrammar(v []byte) string {
	if v[0] != '"' {
		return "it must be a string"
	}
	if len(v) > maxGrammar {
		return fmt.Sprintf("it is larger than the %d bytes that a grammar may have", maxGrammar)
	}
	if bracketsIn(unquote(v)) > maxBrackets {
		return fmt.Sprintf("its brackets nest more than %d deep", maxBrackets)
	}
	return ""
}

// maxBreakers bounds the sequence breakers of a request.
const maxBreakers = 64

func isBreakers(v []byte) string {
	var list []string
	if json.Unmarshal(v, &list) != nil || len(list) > maxBreakers {
		return fmt.Sprintf("it must be a list of at most %d strings", maxBreakers)
	}
	return ""
}

// bracketsIn is how deep the brackets of a grammar nest, outside of quotes, character
// classes and comments.
func bracketsIn(grammar string) (deepest int) {
	depth := 0
	for i := 0; i < len(grammar); i++ {
		switch c := grammar[i]; c {
		case '(':
			depth++
			deepest = max(deepest, depth)
		case ')':
			depth = max(depth-1, 0)
		case '"', '[':
			end := byte('"')
			if c == '[' {
				end = ']'
			}
			for i++; i < len(grammar) && grammar[i] != end; i++ {
				if grammar[i] == '\\' {
					i++
				}
			}
		case '#':
			for i+1 < len(grammar) && grammar[i+1] != '\n' && grammar[i+1] != '\r' {
				i++
			}
		}
	}
	return deepest
}
