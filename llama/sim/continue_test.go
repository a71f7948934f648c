package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// streamed is what a stream says: its text, and the ids of its tokens with the
// bytes that each added, where it tells of them.
type streamed struct {
	text, reasoning string
	ids             []int
	bytes           []string
	predicted       int
	cached          int
	finish          string
}

func follow(t *testing.T, url, path, body string) streamed {
	t.Helper()
	status, all, err := post(t, url+path, body)
	if err != nil || status != 200 {
		t.Fatalf("%d %s %v", status, all, err)
	}
	var out streamed
	for e := range strings.SplitSeq(all, "\n\n") {
		data := strings.TrimPrefix(e, "data: ")
		if data == "" || data == "[DONE]" {
			continue
		}
		var a struct {
			Choices []struct {
				Finish string `json:"finish_reason"`
				Text   string
				Delta  struct {
					Content   string
					Reasoning string `json:"reasoning_content"`
				}
				Logprobs struct {
					Content []struct {
						ID    int
						Bytes []int
					}
				}
			}
			Timings struct {
				Predicted int `json:"predicted_n"`
				Cached    int `json:"cache_n"`
			}
		}
		if err := json.Unmarshal([]byte(data), &a); err != nil {
			t.Fatal(err)
		}
		out.predicted, out.cached = max(out.predicted, a.Timings.Predicted), a.Timings.Cached
		for _, c := range a.Choices {
			out.text += c.Text + c.Delta.Content
			out.reasoning += c.Delta.Reasoning
			out.finish += c.Finish
			for _, p := range c.Logprobs.Content {
				var b []byte
				for _, x := range p.Bytes {
					b = append(b, byte(x))
				}
				out.ids, out.bytes = append(out.ids, p.ID), append(out.bytes, string(b))
			}
		}
	}
	return out
}

const known = `"stream":true,"n_probs":1,"post_sampling_probs":true,"timings_per_token":true`

// An answer goes on from the ids of the prompt and of what was answered as if
// nothing had been, whatever the route and wherever it is cut.
func TestGoesOnFromIDs(t *testing.T) {
	scripts := []Script{{Match: "plain", Turns: []Turn{{Content: "Only text, é and so on."}}}}
	for _, bytewise := range []bool{false, true} {
		_, url := start(t, Options{Bytewise: bytewise, Scripts: scripts, Seed: 7})
		for _, question := range []string{"hello", "plain"} {
			chat := fmt.Sprintf(`"messages":[{"role":"user","content":%q}],"temperature":0,"seed":5`, question)
			_, body, _ := post(t, url+"/apply-template", `{`+chat+`}`)
			var prompt struct{ Prompt string }
			if err := json.Unmarshal([]byte(body), &prompt); err != nil {
				t.Fatal(err)
			}
			whole := follow(t, url, "/v1/chat/completions", `{"max_tokens":40,`+chat+`,`+known+`}`)
			_, body, _ = post(t, url+"/completion", fmt.Sprintf(`{"prompt":%q,"n_predict":40,"temperature":0,"return_tokens":true}`, prompt.Prompt))
			var all struct{ Tokens []int }
			if err := json.Unmarshal([]byte(body), &all); err != nil || len(all.Tokens) != whole.predicted {
				t.Fatalf("%v: %s", err, body)
			}
			for cut := range len(all.Tokens) {
				said := Detokenize(all.Tokens[:cut])
				if incomplete(said) {
					continue
				}
				mixed, _ := json.Marshal([]any{prompt.Prompt})
				for _, id := range all.Tokens[:cut] {
					mixed = fmt.Appendf(mixed[:len(mixed)-1], ",%d]", id)
				}
				rest := follow(t, url, "/v1/completions", fmt.Sprintf(`{"max_tokens":%d,"temperature":0,"seed":9,"prompt":%s,%s}`, 40-cut, mixed, known))
				if said+rest.text != whole.text || rest.finish != whole.finish {
					t.Fatalf("bytewise %v, behind %d tokens: %q and %q are not %q", bytewise, cut, said, rest.text, whole.text)
				}
			}
		}
	}
}

// Tokens that are a part of a character have no event, and the next one's bytes
// are theirs as well; the count tells.
func TestHolesOfCharacters(t *testing.T) {
	_, url := start(t, Options{Bytewise: true})
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"messages":[{"role":"user","content":"hello"}],"max_tokens":60,"ignore_eos":true,` + known + `}`,
		"/v1/completions":      `{"prompt":"hello","max_tokens":60,"ignore_eos":true,` + known + `}`,
	} {
		got := follow(t, url, path, body)
		if got.predicted != 60 || len(got.ids) >= 60 || strings.Join(got.bytes, "") != got.text {
			t.Errorf("%s: %d tokens, %d ids, %q is not %q", path, got.predicted, len(got.ids), got.bytes, got.text)
		}
		if !slices.Contains(got.bytes, "é") && !slices.Contains(got.bytes, "日") && !slices.Contains(got.bytes, "🙂") {
			t.Errorf("%s: no character of several tokens in %q", path, got.bytes)
		}
		if same := Detokenize(Tokenize(got.text, false, false)); same != got.text || len(Tokenize(got.text, false, false)) >= 60 {
			t.Errorf("%s: the text has no other tokens", path)
		}
	}
}

// What is held back as the beginning of a stop string comes with the token that
// shows that it is none; until then a completion tells of tokens without text,
// and a chat of nothing.
func TestHolesOfStopStrings(t *testing.T) {
	scripts := []Script{{Turns: []Turn{{Content: "an STX and STOP and"}}}}
	_, url := start(t, Options{Scripts: scripts})
	chat := follow(t, url, "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"stop":["STOP"],`+known+`}`)
	text := follow(t, url, "/v1/completions", `{"prompt":"<|user|>x<|assistant|>","stop":["STOP"],`+known+`}`)
	for name, got := range map[string]streamed{"chat": chat, "text": text} {
		if got.text != "an STX and " || got.finish != "stop" || !slices.Contains(got.bytes, "STX") || got.predicted != 15 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if len(chat.ids) != 9 || len(text.ids) != 15 || slices.Contains(chat.bytes, "") || !slices.Contains(text.bytes, "") {
		t.Errorf("chat %q, text %q", chat.bytes, text.bytes)
	}
	// At the limit what is held is lost to a stream, and is in a whole answer.
	const short = `"messages":[{"role":"user","content":"x"}],"stop":["STOP"],"max_tokens":5`
	if got := follow(t, url, "/v1/chat/completions", `{`+short+`,`+known+`}`); got.text != "an " || got.finish != "length" || got.predicted != 5 {
		t.Errorf("%+v", got)
	}
	_, body, _ := post(t, url+"/v1/chat/completions", `{`+short+`}`)
	if got, _ := content(t, body); got != "an ST" {
		t.Errorf("%s", body)
	}
}

// A message is gone on with in the part that is named, and not repeated.
func TestGoesOnFromText(t *testing.T) {
	scripts := []Script{{Turns: []Turn{{ReasoningContent: "Hum é.", Content: "Yes, ü."}}}}
	_, url := start(t, Options{Scripts: scripts})
	ask := func(said, how string) streamed {
		return follow(t, url, "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}`+said+`]`+how+`,`+known+`}`)
	}
	const still = `,"add_generation_prompt":false,"continue_final_message":`
	whole := ask("", "")
	// Two marks and the end are tokens without a text.
	if whole.reasoning != "Hum é." || whole.text != "Yes, ü." || whole.predicted != len("Hum é.Yes, ü.")+3 || len(whole.ids) >= whole.predicted-1 {
		t.Errorf("%+v", whole)
	}
	if got := ask(`,{"role":"assistant","content":"","reasoning_content":"Hum"}`, still+`"reasoning_content"`); got.reasoning != " é." || got.text != "Yes, ü." {
		t.Errorf("in the reasoning: %+v", got)
	}
	for _, how := range []string{`"content"`, `true`} {
		if got := ask(`,{"role":"assistant","content":"Yes","reasoning_content":"Hum é."}`, still+how); got.reasoning != "" || got.text != ", ü." {
			t.Errorf("in the content, %s: %+v", how, got)
		}
	}
	if got := ask(`,{"role":"assistant","content":"Yes"}`, ""); got.text != "Yes, ü." {
		t.Errorf("a message that is gone on with without being asked for: %+v", got)
	}
}

// An engine may die when all tokens are out and the end is not.
func TestDiesBeforeItsLastEvent(t *testing.T) {
	_, url := start(t, Options{Faults: []Fault{{Kind: FaultDie, After: 3}}})
	_, body, err := post(t, url+"/v1/completions", `{"prompt":"hello","max_tokens":3,"ignore_eos":true,"stream":true}`)
	if err == nil || strings.Count(body, `"text":"`) != 3 || !strings.Contains(body, `"finish_reason":null`) || strings.Contains(body, `"length"`) {
		t.Errorf("%v: %s", err, body)
	}
}

// A slot keeps what it computed, and the request that has most of it gets it.
func TestPromptCache(t *testing.T) {
	_, url := start(t, Options{Slots: 2})
	ask := func(prompt, more string) int {
		return follow(t, url, "/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":1,"timings_per_token":true,"stream":true%s}`, prompt, more)).cached
	}
	a, b := strings.Repeat("a", 100), strings.Repeat("b", 100)
	for i, c := range []struct {
		prompt, more string
		want         int
	}{
		{a, "", 0}, {b, "", 0}, {a + "x", "", 101}, {b + "x", "", 101}, {a + "y", "", 101}, {b, `,"cache_prompt":false`, 0}, {b, "", 100},
	} {
		if got := ask(c.prompt, c.more); got != c.want {
			t.Errorf("request %d: %d tokens cached, want %d", i, got, c.want)
		}
	}
}
