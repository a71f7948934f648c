package continuation

import (
	"encoding/json"
	"hash/fnv"
	"strconv"

	"relay/api/chat"
)

// ofChats are members of a chat's body that are nothing to a completion, or something else.
var ofChats = []string{
	"messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "chat_template_kwargs", "add_generation_prompt", "continue_final_message",
	"reasoning_format", "reasoning_effort", "reasoning_budget_tokens", "thinking_budget_tokens", "reasoning_budget_message", "logprobs", "top_logprobs",
}

// completion is the body that goes on behind the prompt with some ids.
func (p *Plan) completion(ids []int32) []byte {
	list := make([]byte, 0, 6*len(ids))
	for i, id := range ids {
		if i > 0 {
			list = append(list, ',')
		}
		list = strconv.AppendInt(list, int64(id), 10)
	}
	without, probs := p.changed("prompt"), []byte(nil)
	if p.t.kind == chat.OfChat {
		without = append(without, ofChats...)
		probs = p.probs()
	}
	return p.q.with(without, p.prompt(list), p.rest(), probs)
}

// prompt is the member with the prompt and more behind it: ids, or a text.
func (p *Plan) prompt(more []byte) []byte {
	v := p.q.value("prompt")
	if len(v) > 0 && v[0] == '"' && len(more) > 0 && more[0] == '"' {
		all := chat.Quote([]byte(`,"prompt":`), text(v)+text(more))
		return all
	}
	for i := 0; i < 2 && len(v) > 0 && v[0] == '['; i++ { // A list of one list is one prompt, too.
		inner := 0
		var first json.RawMessage
		chat.Elements(v, func(e json.RawMessage) {
			if inner++; inner == 1 {
				first = e
			}
		})
		if inner == 1 && first[0] == '[' {
			v = first
			continue
		}
		v = v[1 : len(v)-1]
		break
	}
	b := append([]byte(`,"prompt":[`), v...)
	if len(v) > 0 && len(more) > 0 {
		b = append(b, ',')
	}
	return append(append(b, more...), ']')
}

// changed are the members that rest replaces, and others.
func (p *Plan) changed(others ...string) []string {
	if p.left >= 0 {
		others = append(others, limits...)
	}
	return append(others, "seed")
}

// rest are members that say what is left: how many tokens, and a seed that is not the first
// one's, which would have the same chances come again.
func (p *Plan) rest() (b []byte) {
	if p.left >= 0 {
		b = strconv.AppendInt(append(b, `,"n_predict":`...), int64(p.left), 10)
	}
	switch seed := p.q.value("seed"); string(seed) {
	case "":
	case "-1", "4294967295": // Any, to the engine.
		b = append(append(b, `,"seed":`...), seed...)
	default:
		h := fnv.New64a()
		h.Write(seed)
		h.Write(strconv.AppendInt([]byte{','}, int64(p.t.kept), 10))
		for _, id := range p.tokens.ids {
			h.Write([]byte{byte(id), byte(id >> 8), byte(id >> 16), byte(id >> 24)})
		}
		h.Write([]byte(p.content))
		h.Write([]byte(p.reasoning))
		b = strconv.AppendUint(append(b, `,"seed":`...), h.Sum64()>>33, 10)
	}
	return b
}

// probs are a chat's logprobs as a completion is asked for them.
func (p *Plan) probs() []byte {
	if string(p.q.value("logprobs")) != "true" {
		return nil
	}
	top := 20 // As many as the engine tells where it is not said.
	if n, ok := whole(p.q.value("top_logprobs")); ok {
		top = int(min(max(n, 1), 20))
	}
	return strconv.AppendInt([]byte(`,"n_probs":`), int64(top), 10)
}
