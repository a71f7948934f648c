package sim

import (
	"strings"
	"unicode/utf8"
)

// The vocabulary: a few control tokens, the 256 bytes, so that every text has
// ids, and 512 invented four-letter words with a space before them, with some
// marks and characters of several bytes, which are what it answers in.
const (
	tokenUnknown = iota
	tokenBOS
	tokenEOS
	tokenSystem
	tokenUser
	tokenAssistant
	tokenTool
	firstByte
	firstWord = firstByte + 256
	wordCount = 512
	firstMark = firstWord + wordCount
	// VocabSize is the number of token ids: they go from 0 to VocabSize-1.
	VocabSize = firstMark + 6
)

var (
	controls = [firstByte]string{"<unk>", "<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"}
	marks    = [VocabSize - firstMark]string{".", ",", "\n", " né", " 日本", " 🙂"}
)

const consonants, vowels = "bdfghjklmnprstvz", "aeiou"

// word is the n-th invented word without its space. Two syllables; the second
// turns with n so that no word comes twice.
func word(n int) string {
	syllable := func(i int) string {
		i %= len(consonants) * len(vowels)
		return string([]byte{consonants[i/len(vowels)], vowels[i%len(vowels)]})
	}
	return syllable(n) + syllable(7*n+n/(len(consonants)*len(vowels)))
}

// wordID is the inverse of word; ok is false for four letters that are none.
func wordID(s string) (id int, ok bool) {
	syllable := func(s string) int {
		c, v := strings.IndexByte(consonants, s[0]), strings.IndexByte(vowels, s[1])
		if c < 0 || v < 0 {
			return -1
		}
		return c*len(vowels) + v
	}
	const syllables = len(consonants) * len(vowels)
	first, second := syllable(s), syllable(s[2:])
	if first < 0 || second < 0 {
		return 0, false
	}
	turn := ((second-7*first)%syllables + syllables) % syllables
	n := syllables*turn + first
	return firstWord + n, n < wordCount
}

// Piece is the text of one token; control tokens have theirs too. An id outside
// the vocabulary has none.
func Piece(id int) string {
	switch {
	case id < 0 || id >= VocabSize:
		return ""
	case id < firstByte:
		return controls[id]
	case id < firstWord:
		return string([]byte{byte(id - firstByte)})
	case id < firstMark:
		return " " + word(id-firstWord)
	default:
		return marks[id-firstMark]
	}
}

// Detokenize is the text of some ids.
func Detokenize(ids []int) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(Piece(id))
	}
	return b.String()
}

// Tokenize gives the ids of a text: the longest token at each place, bytes where
// there is none. bos puts <s> in front; control lets "<|user|>" and the like be
// read as the control tokens they name.
func Tokenize(text string, bos, control bool) []int {
	ids := make([]int, 0, len(text)/3+2)
	if bos {
		ids = append(ids, tokenBOS)
	}
next:
	for len(text) > 0 {
		if control && text[0] == '<' {
			for id, s := range controls {
				if strings.HasPrefix(text, s) {
					ids, text = append(ids, id), text[len(s):]
					continue next
				}
			}
		}
		if text[0] == ' ' && len(text) >= 5 {
			if id, ok := wordID(text[1:5]); ok {
				ids, text = append(ids, id), text[5:]
				continue
			}
		}
		for i, s := range marks {
			if strings.HasPrefix(text, s) {
				ids, text = append(ids, firstMark+i), text[len(s):]
				continue next
			}
		}
		ids, text = append(ids, firstByte+int(text[0])), text[1:]
	}
	return ids
}

// chain folds ids into 64 bits, in order: FNV-1a over whole ids.
type chain uint64

func newChain(seed uint64) chain {
	return chain(14695981039346656037).add(int(seed)).add(int(seed >> 32))
}

func (c chain) add(id int) chain { return (c ^ chain(uint32(id))) * 1099511628211 }

// mix spreads the bits: FNV leaves those of the last id visible.
func (c chain) mix() uint64 {
	h := uint64(c)
	h ^= h >> 30
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	h ^= h >> 31
	return h
}

// next is the token that follows, <eos> about once in 64.
func (c chain) next(ignoreEOS bool) int {
	h := c.mix()
	if !ignoreEOS && h>>58 == 0 {
		return tokenEOS
	}
	return firstWord + int(h%(VocabSize-firstWord))
}

// Next is the token that follows ids under a seed: all that the stand-in knows.
func Next(ids []int, seed uint64, ignoreEOS bool) int {
	c := newChain(seed)
	for _, id := range ids {
		c = c.add(id)
	}
	return c.next(ignoreEOS)
}

// Answer is what comes after ids, at most max tokens long, without the <eos>
// that may end it.
func Answer(ids []int, seed uint64, max int, ignoreEOS bool) (answer []int, eos bool) {
	c := newChain(seed)
	for _, id := range ids {
		c = c.add(id)
	}
	for len(answer) < max {
		id := c.next(ignoreEOS)
		if id == tokenEOS {
			return answer, true
		}
		answer, c = append(answer, id), c.add(id)
	}
	return answer, false
}

// pieceJSON is a piece as /tokenize shows it: a string, or its bytes where they
// are not a character by themselves.
func pieceJSON(id int) any {
	s := Piece(id)
	if utf8.ValidString(s) {
		return s
	}
	return bytesOf(s)
}

// bytesOf is a text as a list of numbers, which is how llama-server writes bytes.
func bytesOf(s string) []int {
	out := make([]int, len(s))
	for i := range len(s) {
		out[i] = int(s[i])
	}
	return out
}
