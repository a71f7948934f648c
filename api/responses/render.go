package responses

import (
	"strconv"

	"relay/api/chat"
)

// state is how far a response is.
type state struct {
	status    string
	completed int64  // Unix seconds; 0 is not
	failure   string // why it failed
	over      bool   // its output and usage are known
}

// eventHead begins an event; end ends it.
func (r *Reply) eventHead(dst []byte, name string) []byte {
	dst = append(append(dst, "event: "...), name...)
	dst = append(append(append(dst, "\ndata: {\"type\":\""...), name...), `","sequence_number":`...)
	dst = strconv.AppendInt(dst, int64(r.seq), 10)
	r.seq++
	return dst
}

func end(dst []byte) []byte { return append(dst, "}\n\n"...) }

// event begins one about a part of an item.
func (r *Reply) event(dst []byte, name string, it *item) []byte {
	dst = append(append(r.eventHead(dst, name), `,"item_id":"`...), it.id...)
	return strconv.AppendInt(append(dst, `","output_index":`...), int64(it.index), 10)
}

func (r *Reply) itemEvent(dst []byte, name string, it *item, status string) []byte {
	if !r.q.Stream {
		return dst
	}
	dst = strconv.AppendInt(append(r.eventHead(dst, name), `,"output_index":`...), int64(it.index), 10)
	return end(it.append(append(dst, `,"item":`...), status))
}

func (r *Reply) partEvent(dst []byte, name string, it *item) []byte {
	if !r.q.Stream {
		return dst
	}
	dst = append(r.event(dst, name, it), `,"content_index":0,"part":`...)
	return end(it.appendPart(dst))
}

// append writes the item as it is so far.
func (it *item) append(dst []byte, status string) []byte {
	dst = append(append(append(dst, `{"id":"`...), it.id...), `","type":`...)
	switch it.kind {
	case call:
		dst = append(append(append(dst, `"function_call","status":"`...), status...), `","arguments":`...)
		dst = chat.Quote(dst, it.text.Bytes())
		dst = chat.Quote(append(dst, `,"call_id":`...), it.callID)
		return append(chat.Quote(append(dst, `,"name":`...), it.name), '}')
	case reasoning:
		dst = append(dst, `"reasoning","summary":[],"status":"`...)
	default:
		dst = append(dst, `"message","role":"assistant","status":"`...)
	}
	dst = append(append(dst, status...), `","content":[`...)
	if it.text.Len() > 0 {
		dst = it.appendPart(dst)
	}
	return append(dst, "]}"...)
}

func (it *item) appendPart(dst []byte) []byte {
	if it.kind == reasoning {
		dst = append(dst, `{"type":"reasoning_text","text":`...)
		return append(chat.Quote(dst, it.text.Bytes()), '}')
	}
	dst = append(append(dst, `{"type":"output_text","annotations":[],"logprobs":[`...), it.probs.Bytes()...)
	return append(chat.Quote(append(dst, `],"text":`...), it.text.Bytes()), '}')
}

// whole writes an event with the response as it is.
func (r *Reply) whole(dst []byte, name string, s state) []byte {
	if !r.q.Stream {
		return dst
	}
	return end(r.appendResponse(append(r.eventHead(dst, name), `,"response":`...), s))
}

func (r *Reply) appendResponse(dst []byte, s state) []byte {
	dst = append(append(append(dst, `{"id":"resp_`...), r.id...), `","object":"response","created_at":`...)
	dst = strconv.AppendInt(dst, r.created, 10)
	dst = append(append(append(dst, `,"status":"`...), s.status...), `","completed_at":`...)
	if s.completed > 0 {
		dst = strconv.AppendInt(dst, s.completed, 10)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"error":`...)
	if s.status == "failed" {
		dst = append(chat.Quote(append(dst, `{"code":"server_error","message":`...), s.failure), '}')
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"incomplete_details":`...)
	if s.status == "incomplete" {
		dst = append(dst, `{"reason":"max_output_tokens"}`...)
	} else {
		dst = append(dst, "null"...)
	}
	dst = chat.Quote(append(dst, `,"model":`...), r.model)
	dst = append(append(dst, r.q.echo...), `,"output":[`...)
	if s.over {
		for i, it := range r.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = it.append(dst, it.status())
		}
	}
	dst = append(dst, `],"usage":`...)
	if !s.over {
		return append(dst, "null}"...)
	}
	u := r.meter.Usage()
	number := func(name string, n int) { dst = strconv.AppendInt(append(dst, name...), int64(n), 10) }
	number(`{"input_tokens":`, u.Prompt)
	number(`,"input_tokens_details":{"cached_tokens":`, u.Cached)
	number(`},"output_tokens":`, u.Completion)
	number(`,"output_tokens_details":{"reasoning_tokens":`, r.meter.Reasoning())
	number(`},"total_tokens":`, u.Total)
	return append(dst, "}}"...)
}
