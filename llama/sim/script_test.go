package sim

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

const weatherScript = `[
	{"match":"Rome","turns":[
		{"reasoning_content":"Hé 🙂.","content":"One moment.","tool_calls":[
			{"name":"weather","arguments":{"city":"Röme 日本", "n":1.50}},{"name":"time","arguments":"{not json"}]},
		{"content":"Sunny.","finish_reason":"length"}]},
	{"match":"plain","turns":[{"content":"Only text."}]}]`

const tools = `,"tools":[{"type":"function","function":{"name":"weather"}},{"type":"function","function":{"name":"time"}}]`

// told is an answer to a chat, put together from either form.
type told struct {
	Role, Content, Reasoning, Finish string
	Calls                            []call
}

func tell(t *testing.T, url, messages, more string, stream bool) told {
	t.Helper()
	status, body, err := post(t, url+"/v1/chat/completions", fmt.Sprintf(`{"messages":[%s]%s,"stream":%v}`, messages, more, stream))
	if err != nil || status != 200 {
		t.Fatalf("%d %s %v", status, body, err)
	}
	if !stream {
		body = "data: " + body
	}
	var out told
	for e := range strings.SplitSeq(body, "\n\n") {
		data := strings.TrimPrefix(e, "data: ")
		if data == "" || data == "[DONE]" {
			continue
		}
		type content struct {
			Role, Content string
			Reasoning     string `json:"reasoning_content"`
			ToolCalls     []struct {
				Index    *int
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		var a struct {
			Choices []struct {
				Finish  string `json:"finish_reason"`
				Message *content
				Delta   content
			}
		}
		if err := json.Unmarshal([]byte(data), &a); err != nil {
			t.Fatal(err)
		}
		for _, c := range a.Choices {
			m := c.Delta
			if c.Message != nil {
				m = *c.Message
			}
			out.Role += m.Role
			out.Content += m.Content
			out.Reasoning += m.Reasoning
			out.Finish += c.Finish
			for i, one := range m.ToolCalls {
				at := i
				if one.Index != nil {
					at = *one.Index
				}
				if at == len(out.Calls) {
					if one.Function.Name == "" || len(one.ID) != 32 {
						t.Errorf("a call begins with %+v", one)
					}
					out.Calls = append(out.Calls, call{id: one.ID, name: one.Function.Name})
				} else if one.ID != "" || one.Function.Name != "" {
					t.Errorf("call %d is named again: %+v", at, one)
				}
				out.Calls[at].arguments += one.Function.Arguments
			}
		}
	}
	return out
}

func TestScript(t *testing.T) {
	scripts, err := ParseScripts([]byte(weatherScript))
	if err != nil {
		t.Fatal(err)
	}
	_, url := start(t, Options{Scripts: scripts})
	const rome = `{"role":"user","content":"How is Rome?"}`
	const called = `,{"role":"assistant","content":"One moment.","tool_calls":[{"id":"a","type":"function","function":{"name":"weather","arguments":"{}"}}]}` +
		`,{"role":"tool","tool_call_id":"a","content":"sun"}`
	const short = `,"max_tokens":4,"ignore_eos":true`
	calls := []call{{name: "weather", arguments: `{"city":"Röme 日本","n":1.50}`}, {name: "time", arguments: "{not json"}}
	plain := func(prompt string) told {
		ids, _ := Answer(Tokenize(prompt, true, true), 0, 4, true)
		return told{Role: "assistant", Content: Detokenize(ids), Finish: "length"}
	}
	offered := "<|tool|>" + strings.TrimPrefix(tools, `,"tools":`)
	for name, c := range map[string]struct {
		messages, more string
		want           told
	}{
		"first turn":       {rome, tools, told{"assistant", "One moment.", "Hé 🙂.", "tool_calls", calls}},
		"second turn":      {rome + called, tools, told{Role: "assistant", Content: "Sunny.", Finish: "length"}},
		"beside a result":  {rome + called + `,{"role":"user","content":"Go on."}`, tools, told{Role: "assistant", Content: "Sunny.", Finish: "length"}},
		"asked again":      {rome + called + `,{"role":"assistant","content":"Sunny."},` + rome, tools, told{"assistant", "One moment.", "Hé 🙂.", "tool_calls", calls}},
		"no tools":         {`{"role":"user","content":"Rome"}`, short, plain("<|user|>Rome<|assistant|>")},
		"none allowed":     {`{"role":"user","content":"Rome"}`, short + tools + `,"tool_choice":"none"`, plain(offered + "<|user|>Rome<|assistant|>")},
		"no match":         {`{"role":"user","content":"Oslo"}`, short + tools, plain(offered + "<|user|>Oslo<|assistant|>")},
		"text without":     {`{"role":"user","content":[{"type":"text","text":"plain"}]}`, "", told{Role: "assistant", Content: "Only text.", Finish: "stop"}},
		"cut short":        {rome, tools + `,"max_tokens":3`, told{Role: "assistant", Reasoning: "H", Finish: "length"}},
		"a function named": {`{"role":"user","content":"Oslo"}`, short + tools + `,"tool_choice":{"type":"function","function":{"name":"time"}}`, plain(offered + "<|user|>Oslo<|assistant|>")},
	} {
		for _, stream := range []bool{false, true} {
			got := tell(t, url, c.messages, c.more, stream)
			for i := range got.Calls {
				got.Calls[i].id = ""
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s, stream %v:\n%+v\nwant\n%+v", name, stream, got, c.want)
			}
		}
	}
	again := rome + called + called + called
	if got := tell(t, url, again, tools+short, true); got.Content == "Sunny." || got.Finish != "length" {
		t.Errorf("past the script's end: %+v", got)
	}
	status, body, err := post(t, url+"/v1/chat/completions", `{"messages":[`+rome+`],"tools":[{"type":"function","function":{"name":"time"}}]}`)
	if err != nil || status != 400 || !strings.Contains(body, `\"weather\", which is not among the tools`) {
		t.Errorf("a tool that is not there: %d %s %v", status, body, err)
	}
}

func TestRequiredTool(t *testing.T) {
	_, url := start(t, Options{})
	const offer = `,"tool_choice":"required","tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"enum":["Rome"]}},"required":["city"]}}}]`
	for _, stream := range []bool{false, true} {
		got := tell(t, url, `{"role":"user","content":"hi"}`, offer, stream)
		if len(got.Calls) != 1 || got.Calls[0].name != "weather" || got.Calls[0].arguments != `{"city":"Rome"}` || got.Finish != "tool_calls" || got.Content != "" {
			t.Errorf("%+v", got)
		}
		if again := tell(t, url, `{"role":"user","content":"hi"}`, offer, !stream); !reflect.DeepEqual(got, again) {
			t.Errorf("%+v, then %+v", got, again)
		}
	}
}

func TestParseScripts(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                                "not a list",
		`[{"turns":[{"content":"a"}]}] x`:   "behind the list",
		`[{"match":"a"}]`:                   "0 turns",
		`[{"turns":[{}]}]`:                  "says nothing",
		`[{"turns":[{"contents":"a"}]}]`:    "unknown field",
		`[{"turns":[{"tool_calls":[{}]}]}]`: "no name",
		`[{"turns":[{"content":"a","finish_reason":"bored"}]}]`:          "finish_reason",
		`[` + strings.Repeat(" ", MaxScriptBytes) + `]`:                  "bytes",
		`[` + strings.Repeat(`{"turns":[{"content":"a"}]},`, 64) + `{}]`: "more than 64",
	} {
		if _, err := ParseScripts([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v does not say %q", text, err, want)
		}
	}
}

func FuzzScripts(f *testing.F) {
	f.Add([]byte(weatherScript))
	f.Add([]byte(`[{"turns":[{"tool_calls":[{"name":"a","arguments":"\ud800"}]}]}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		scripts, err := ParseScripts(b)
		if err != nil {
			return
		}
		for _, s := range scripts {
			for _, turn := range s.Turns {
				var tools []tool
				var want []string
				for _, c := range turn.ToolCalls {
					var o tool
					o.Function.Name = c.Name
					tools, want = append(tools, o), append(want, c.text())
				}
				p, err := turn.plan(0, tools)
				if err != nil {
					t.Fatal(err)
				}
				var said, thought string
				got := make([]string, len(p.calls))
				for _, step := range p.steps {
					switch step.kind {
					case saying:
						said += step.text
					case thinking:
						thought += step.text
					default:
						got[step.call] += step.text
					}
				}
				if said != turn.Content || thought != turn.ReasoningContent || strings.Join(got, "\x00") != strings.Join(want, "\x00") {
					t.Fatalf("%+v became %q %q %q", turn, said, thought, got)
				}
			}
		}
	})
}
