package api

import (
	"bytes"
	"hash/fnv"

	"relay/scheduler"
)

const (
	// maxBlocks bounds the blocks of a prompt that are hashed, maxBlock what is hashed of
	// each part of one, in bytes: of a longer one its beginning and its length.
	maxBlocks = 16
	maxBlock  = 16 << 10
	// maxParts bounds the messages that are looked at.
	maxParts = 256
	// textBlock is how long a block of text is, in bytes as JSON has them.
	textBlock = 512
	// bytesPerToken is how many bytes of JSON there are about to a token.
	bytesPerToken = 4
)

// begins says in want how the request's prompt begins, and how long it is: two requests
// that begin alike say so alike, at whichever door they are. Of what is no prompt to be
// gone on with, it says nothing.
func (q *request) begins(want *scheduler.Want) {
	if q.kind == kindEmbed || q.kind == kindRerank {
		return
	}
	var c chain
	messages, tools, prompt := q.value("messages"), q.value("tools"), q.value("prompt")
	switch {
	case len(messages) > 0 && messages[0] == '[':
		c.messages(tools, messages)
	case prompt != nil && q.prompts <= 1:
		c.text(prompt)
	}
	want.Prefix, want.Shared = c.list, c.shared
	if q.text > 0 { // It is unknown where there are images.
		want.Tokens = (len(messages) + len(tools) + len(prompt)) / bytesPerToken
	}
}

// chain are hashes of blocks, each with all before it.
type chain struct {
	list   []uint64
	shared int
	sum    uint64
	// open: something was added since the last hash.
	open bool
}

// add makes a part of a block.
func (c *chain) add(part []byte) {
	h := fnv.New64a()
	var head [16]byte
	for i := range 8 {
		head[i], head[8+i] = byte(c.sum>>(8*i)), byte(len(part)>>(8*i))
	}
	h.Write(head[:])
	h.Write(part[:min(len(part), maxBlock)])
	c.sum, c.open = h.Sum64(), true
}

// end ends a block, if there is anything in it, and says whether there may be another.
func (c *chain) end() bool {
	if c.open {
		c.list, c.open = append(c.list, c.sum), false
	}
	return len(c.list) < maxBlocks
}

// messages makes a block of what many talks begin with, the tools and the first messages
// that are instructions; then of each answer, and of what was said between two. So each
// turn of a talk adds two, however many tools were called in it.
func (c *chain) messages(tools, list []byte) {
	if tools != nil {
		c.add(tools)
	}
	last := roleInstructions
	elements(list, func(n int, message []byte) bool {
		role := roleOf(message)
		if role == roleInstructions && last != roleInstructions {
			role = roleOther
		}
		if role != last {
			if last == roleInstructions && c.open {
				c.shared = 1
			}
			if !c.end() {
				return false
			}
		}
		last = role
		c.add(message)
		return n < maxParts
	})
	if last == roleInstructions && c.open {
		c.shared = 1
	}
	c.end()
}

// text makes a block of each so many bytes.
func (c *chain) text(prompt []byte) {
	for ; len(prompt) > textBlock; prompt = prompt[textBlock:] {
		c.add(prompt[:textBlock])
		if !c.end() {
			return
		}
	}
}

// role is whose a message is, as far as it matters where a block ends.
type role int

const (
	roleInstructions role = iota
	roleAnswer
	roleOther
)

// roleNames are the roles that are not roleOther, as JSON has them mostly.
var roleNames = map[string]role{`"system"`: roleInstructions, `"developer"`: roleInstructions, `"assistant"`: roleAnswer}

// roleOf is the role of a message, which is valid JSON.
func roleOf(message []byte) (r role) {
	r = roleOther
	if message[0] != '{' {
		return r
	}
	for i := next(message, 1); message[i] == '"'; {
		key := message[i:skip(message, i)]
		i = next(message, i+len(key))
		i = next(message, i+1) // Behind the colon.
		end := skip(message, i)
		if string(key) == `"role"` {
			if is, ok := roleNames[string(message[i:end])]; ok {
				return is
			}
			return roleOther
		}
		if i = next(message, end); message[i] != ',' {
			break
		}
		i = next(message, i+1)
	}
	return r
}

// elements gives the elements of a list, which is valid JSON, until each says false.
func elements(list []byte, each func(n int, element []byte) bool) {
	i := next(list, 1)
	for n := 1; list[i] != ']'; n++ {
		end := skip(list, i)
		if !each(n, list[i:end]) {
			return
		}
		if i = next(list, end); list[i] == ',' {
			i = next(list, i+1)
		}
	}
}

// next is where the next byte is that is no space.
func next(b []byte, i int) int {
	for b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r' {
		i++
	}
	return i
}

// skip is where the value ends that begins at i, in valid JSON.
func skip(b []byte, i int) int {
	depth := 0
	for {
		switch b[i] {
		case '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		default:
			if depth == 0 { // A number or a word.
				for i < len(b) && bytes.IndexByte([]byte(",]} \t\r\n"), b[i]) < 0 {
					i++
				}
				return i
			}
		}
		if i++; depth == 0 {
			return i
		}
	}
}
