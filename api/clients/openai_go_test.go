// Package clients_test drives a peer's door with openai-go. TestClients of the program
// runs it, and says in the environment where the peer is.
package clients_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

// newClient is a client as it comes: the address and the key are in the environment.
func newClient(t *testing.T, options ...option.RequestOption) (openai.Client, context.Context) {
	t.Helper()
	if os.Getenv("RELAY_TEST_CONTROL") == "" {
		t.Skip("there is no mesh to ask: run `go test -run '^TestClients$' ./cmd/relay`, which makes one and runs this")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return openai.NewClient(options...), ctx
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// asking is a chat of one message.
func asking(text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: "chat", MaxTokens: openai.Int(12), Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}}
}

// refused wants the error of an answer.
func refused(t *testing.T, err error, status int, code, param string) {
	t.Helper()
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != status || e.Code != code || e.Param != param || e.Message == "" {
		t.Errorf("want %d %s %q, got %v", status, code, param, err)
	}
}

func TestModels(t *testing.T) {
	c, ctx := newClient(t)
	pages := c.Models.ListAutoPaging(ctx)
	var names []string
	for pages.Next() {
		names = append(names, pages.Current().ID)
	}
	if err := pages.Err(); err != nil || !strings.Contains(strings.Join(names, " "), "chat") {
		t.Errorf("%v %v", names, err)
	}
	if m := must[*openai.Model](t)(c.Models.Get(ctx, "chat")); m.ID != "chat" {
		t.Errorf("%+v", m)
	}
}

func TestChat(t *testing.T) {
	c, ctx := newClient(t)
	whole := must[*openai.ChatCompletion](t)(c.Chat.Completions.New(ctx, asking("Say something.")))
	if len(whole.Choices) != 1 || whole.Choices[0].Message.Content == "" || whole.Choices[0].FinishReason != "length" || whole.Usage.CompletionTokens != 12 {
		t.Errorf("%s", whole.RawJSON())
	}
	ask := asking("Say something.")
	ask.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := c.Chat.Completions.NewStreaming(ctx, ask)
	var all openai.ChatCompletionAccumulator
	for stream.Next() {
		if !all.AddChunk(stream.Current()) {
			t.Errorf("a chunk does not fit: %s", stream.Current().RawJSON())
		}
	}
	if err := stream.Err(); err != nil || all.Choices[0].Message.Content != whole.Choices[0].Message.Content || all.Usage.CompletionTokens != 12 {
		t.Errorf("%v: %+v", err, all.ChatCompletion)
	}
}

func TestLeavesInTheMiddle(t *testing.T) {
	c, ctx := newClient(t)
	ask := asking("Say something.")
	ask.Model, ask.MaxTokens = "slow", openai.Int(2000)
	begun, leave := context.WithCancel(ctx)
	defer leave()
	stream := c.Chat.Completions.NewStreaming(begun, ask)
	for n := 0; n < 3 && stream.Next(); n++ {
	}
	leave()
	_ = stream.Close()
	for deadline := time.Now().Add(2 * time.Second); active(t, ctx, "slow") > 0; {
		if time.Now().After(deadline) {
			t.Fatal("the engine goes on")
		}
	}
	ask.MaxTokens = openai.Int(2)
	must[*openai.ChatCompletion](t)(c.Chat.Completions.New(ctx, ask))
}

// active is how many requests the stand-in of a model computes.
func active(t *testing.T, ctx context.Context, model string) int {
	t.Helper()
	var state struct{ Active int }
	control(t, ctx, http.MethodGet, model+"/sim/state", "", &state)
	return state.Active
}

func control(t *testing.T, ctx context.Context, method, path, body string, v any) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, os.Getenv("RELAY_TEST_CONTROL")+"/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || json.Unmarshal(said, v) != nil {
		t.Fatalf("%s: %s: %s %v", path, answer.Status, said, err)
	}
}

var weather = shared.FunctionDefinitionParam{
	Name: "weather", Description: openai.String("The weather of a place"),
	Parameters: shared.FunctionParameters{"type": "object", "properties": map[string]any{"place": map[string]any{"type": "string"}}, "required": []string{"place"}, "additionalProperties": false},
}

func TestTools(t *testing.T) {
	c, ctx := newClient(t)
	ask := asking("What is the weather in Rome and Oslo?")
	ask.MaxTokens = openai.Int(200)
	ask.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(weather)}
	whole := must[*openai.ChatCompletion](t)(c.Chat.Completions.New(ctx, ask))
	wantCalls(t, whole.Choices[0])
	stream := c.Chat.Completions.NewStreaming(ctx, ask)
	var all openai.ChatCompletionAccumulator
	for stream.Next() {
		if !all.AddChunk(stream.Current()) {
			t.Errorf("a chunk does not fit: %s", stream.Current().RawJSON())
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	wantCalls(t, all.Choices[0])

	ask.Messages = append(ask.Messages, whole.Choices[0].Message.ToParam())
	for _, call := range whole.Choices[0].Message.ToolCalls {
		ask.Messages = append(ask.Messages, openai.ToolMessage("sunny", call.ID))
	}
	if next := must[*openai.ChatCompletion](t)(c.Chat.Completions.New(ctx, ask)); next.Choices[0].Message.Content != "It is sunny in both." {
		t.Errorf("%s", next.RawJSON())
	}
}

func wantCalls(t *testing.T, choice openai.ChatCompletionChoice) {
	t.Helper()
	var got []string
	for _, call := range choice.Message.ToolCalls {
		var args struct{ Place string }
		if err := json.Unmarshal([]byte(call.Function.Arguments), &args); err != nil || call.ID == "" {
			t.Errorf("%+v: %v", call, err)
		}
		got = append(got, call.Function.Name+" "+args.Place)
	}
	if fmt.Sprint(got) != "[weather Rome weather Oslo]" || choice.FinishReason != "tool_calls" {
		t.Errorf("%v, %s", got, choice.FinishReason)
	}
}

func TestSchema(t *testing.T) {
	c, ctx := newClient(t)
	ask := asking("A place.")
	ask.MaxTokens = openai.Int(200)
	ask.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
		Name: "place", Strict: openai.Bool(true),
		Schema: map[string]any{"type": "object", "properties": map[string]any{"people": map[string]any{"type": "integer"}}, "required": []string{"people"}, "additionalProperties": false},
	}}
	answer := must[*openai.ChatCompletion](t)(c.Chat.Completions.New(ctx, ask))
	var found struct{ People *int }
	if err := json.Unmarshal([]byte(answer.Choices[0].Message.Content), &found); err != nil || found.People == nil {
		t.Errorf("%s: %v", answer.RawJSON(), err)
	}
}

func TestEmbeddings(t *testing.T) {
	c, ctx := newClient(t)
	e := must[*openai.CreateEmbeddingResponse](t)(c.Embeddings.New(ctx, openai.EmbeddingNewParams{Model: "embed", Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"one", "two"}}}))
	if len(e.Data) != 2 || len(e.Data[0].Embedding) < 8 || e.Data[1].Index != 1 || e.Usage.PromptTokens == 0 {
		t.Errorf("%s", e.RawJSON())
	}
}

func TestResponses(t *testing.T) {
	c, ctx := newClient(t)
	ask := responses.ResponseNewParams{Model: "chat", MaxOutputTokens: openai.Int(16), Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Say something.")}}
	whole := must[*responses.Response](t)(c.Responses.New(ctx, ask))
	if whole.OutputText() == "" || whole.Status != responses.ResponseStatusIncomplete || whole.Usage.OutputTokens != 16 {
		t.Errorf("%s", whole.RawJSON())
	}
	stream := c.Responses.NewStreaming(ctx, ask)
	var text strings.Builder
	var last *responses.Response
	for number := int64(0); stream.Next(); number++ {
		event := stream.Current()
		if event.SequenceNumber != number {
			t.Errorf("event %d has number %d", number, event.SequenceNumber)
		}
		switch event.Type {
		case "response.output_text.delta":
			text.WriteString(event.AsResponseOutputTextDelta().Delta)
		case "response.incomplete":
			r := event.AsResponseIncomplete().Response
			last = &r
		}
	}
	if err := stream.Err(); err != nil || last == nil || text.String() != whole.OutputText() || last.OutputText() != whole.OutputText() {
		t.Errorf("%v: %q, not %q", err, text.String(), whole.OutputText())
	}
}

func TestErrors(t *testing.T) {
	c, ctx := newClient(t, option.WithMaxRetries(0))
	ask := asking("Say something.")
	_, err := c.Chat.Completions.New(ctx, ask, option.WithAPIKey("rk-made-up"))
	refused(t, err, http.StatusUnauthorized, "invalid_api_key", "")
	ask.Model = "nobody"
	_, err = c.Chat.Completions.New(ctx, ask)
	refused(t, err, http.StatusNotFound, "model_not_found", "model")
	ask = asking(strings.Repeat("word ", 6000))
	_, err = c.Chat.Completions.New(ctx, ask)
	refused(t, err, http.StatusBadRequest, "context_length_exceeded", "messages")
	ask = asking("Say something.")
	ask.Store = openai.Bool(true)
	_, err = c.Chat.Completions.New(ctx, ask)
	refused(t, err, http.StatusBadRequest, "invalid_request", "store")
}

func TestRetries(t *testing.T) {
	c, ctx := newClient(t)
	ask := asking("Say something.")
	ask.Model = "faulty"
	must[*openai.ChatCompletion](t)(c.Chat.Completions.New(ctx, ask))
	var state struct{ Struck int }
	control(t, ctx, http.MethodPost, "faulty/sim/faults", `["refuse*1"]`, &state)
	must[*openai.ChatCompletion](t)(c.Chat.Completions.New(ctx, ask))

	// One request at a time: the second is told when to come again, and comes.
	told := make(chan string, 10)
	single := openai.NewClient(option.WithAPIKey(os.Getenv("RELAY_TEST_SINGLE_KEY")), option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		answer, err := next(r)
		if err == nil && answer.StatusCode == http.StatusTooManyRequests {
			told <- answer.Header.Get("Retry-After")
		}
		return answer, err
	}))
	long := asking("Say something.")
	long.Model, long.MaxTokens = "slow", openai.Int(2000)
	begun, leave := context.WithCancel(ctx)
	defer leave()
	stream := single.Chat.Completions.NewStreaming(begun, long)
	if !stream.Next() {
		t.Fatal(stream.Err())
	}
	var next sync.WaitGroup
	next.Go(func() {
		if _, err := single.Chat.Completions.New(ctx, asking("Say something.")); err != nil {
			t.Errorf("it was told when to come again: %v", err)
		}
	})
	select {
	case after := <-told:
		if after == "" {
			t.Error("it was not told when")
		}
	case <-ctx.Done():
		t.Error("it was not refused")
	}
	leave()
	next.Wait()
	_ = stream.Close()
}
