package api

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"relay/scheduler"
)

// modelShape is a model in OpenAI's shape, with what else a client may want.
type modelShape struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	capabilities
}

// capabilities are what is not in OpenAI's shape, nor in Anthropic's.
type capabilities struct {
	// UID names the model even when its name is given to another one.
	UID string `json:"uid"`
	// Aliases are the further names that mean it.
	Aliases []string `json:"aliases,omitempty"`
	// Kind is chat, embed or rerank.
	Kind string `json:"kind"`
	// Tools and Images are left out while unknown.
	Tools  *bool `json:"tools,omitempty"`
	Images *bool `json:"images,omitempty"`
	// ContextLength, and the longest answer, which shares it with the prompt, are in
	// tokens; they are left out while unknown.
	ContextLength int `json:"context_length,omitempty"`
	MaxOutput     int `json:"max_output_tokens,omitempty"`
}

func capabilitiesOf(m scheduler.ServedModel) capabilities {
	c := capabilities{UID: m.UID, Aliases: m.Aliases, Kind: cmp.Or(m.Kind, kindChat), ContextLength: m.Context}
	if c.Kind == kindChat {
		c.MaxOutput = m.Context
	}
	if !m.Unknown && m.Kind != "" {
		c.Tools, c.Images = &m.Tools, &m.Images
	}
	return c
}

func shapeOf(m scheduler.ServedModel) modelShape {
	return modelShape{m.Name, "model", m.Created, "relay", capabilitiesOf(m)}
}

// anthropicModel is a model in Anthropic's shape.
type anthropicModel struct {
	Type        string `json:"type"`
	ID          string `json:"id"`
	DisplayName string `json:"display_name"`
	CreatedAt   string `json:"created_at"`
	MaxInput    int    `json:"max_input_tokens,omitempty"`
	MaxTokens   int    `json:"max_tokens,omitempty"`
	capabilities
}

func anthropicShapeOf(m scheduler.ServedModel) anthropicModel {
	c := capabilitiesOf(m)
	return anthropicModel{"model", m.Name, m.Name, time.Unix(m.Created, 0).UTC().Format(time.RFC3339), c.ContextLength, c.MaxOutput, c}
}

// modelsFor lists what a call may ask for, by name.
func (d *Door) modelsFor(c *call) []scheduler.ServedModel {
	return slices.DeleteFunc(d.models(), func(m scheduler.ServedModel) bool { return !c.grant.May(m.Name) })
}

// models lists what may be asked for, by name.
func (d *Door) models() []scheduler.ServedModel {
	all := slices.Clone(d.opt.Scheduler.Models())
	slices.SortFunc(all, func(a, b scheduler.ServedModel) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return strings.Compare(a.UID, b.UID)
	})
	return all
}

func (d *Door) listModels(w http.ResponseWriter, r *http.Request, c *call) {
	models := d.modelsFor(c)
	if _, ok := c.shape.(shapeAnthropic); ok {
		d.listAnthropic(w, r, c, models)
		return
	}
	list := []modelShape{}
	for _, m := range models {
		list = append(list, shapeOf(m))
	}
	writeJSON(w, http.StatusOK, encodeJSON(struct {
		Object string       `json:"object"`
		Data   []modelShape `json:"data"`
	}{"list", list}))
}

// listAnthropic lists models in Anthropic's shape, which has pages.
func (d *Door) listAnthropic(w http.ResponseWriter, r *http.Request, c *call, models []scheduler.ServedModel) {
	query, limit := r.URL.Query(), 20
	if v := query.Get("limit"); v != "" {
		n, ok := whole([]byte(v))
		if !ok || n < 1 || n > 1000 {
			d.refuse(w, c, invalid("limit", "limit must be a whole number from 1 to 1000"))
			return
		}
		limit = n
	}
	at := func(id string) int {
		return slices.IndexFunc(models, func(m scheduler.ServedModel) bool { return m.Name == id })
	}
	start, end := 0, len(models)
	if id := query.Get("after_id"); id != "" {
		start = at(id) + 1
	}
	before := at(query.Get("before_id"))
	if before >= 0 {
		end = max(before, start)
	}
	more := end-start > limit
	if before >= 0 { // The page is of the last ones.
		start = max(start, end-limit)
	}
	page := struct {
		Data    []anthropicModel `json:"data"`
		HasMore bool             `json:"has_more"`
		FirstID *string          `json:"first_id"`
		LastID  *string          `json:"last_id"`
	}{Data: []anthropicModel{}, HasMore: more}
	for _, m := range models[start:min(end, start+limit)] {
		page.Data = append(page.Data, anthropicShapeOf(m))
	}
	if n := len(page.Data); n > 0 {
		page.FirstID, page.LastID = &page.Data[0].ID, &page.Data[n-1].ID
	}
	writeJSON(w, http.StatusOK, encodeJSON(page))
}

func (d *Door) showModel(w http.ResponseWriter, r *http.Request, c *call) {
	asked := strings.TrimPrefix(r.URL.Path, "/v1/models/")
	c.model = asked
	m, found := d.opt.Scheduler.Resolve(asked)
	if !found || !c.grant.May(m.Name) {
		d.refuse(w, c, unknownModel(asked, d.modelsFor(c)))
		return
	}
	if _, ok := c.shape.(shapeAnthropic); ok {
		writeJSON(w, http.StatusOK, encodeJSON(anthropicShapeOf(m)))
		return
	}
	writeJSON(w, http.StatusOK, encodeJSON(shapeOf(m)))
}

// unknownModel says what there is instead, as far as a sentence can hold it.
func unknownModel(asked string, models []scheduler.ServedModel) *refusal {
	const shown = 20
	var names []string
	for _, m := range models {
		if len(names) == shown {
			break
		}
		names = append(names, clip(m.Name, 80))
	}
	there := "no model is registered yet (relay model add)"
	if len(names) > 0 {
		there = "there is: " + strings.Join(names, ", ")
		if more := len(models) - len(names); more > 0 {
			there += fmt.Sprintf(" and %d more (GET /v1/models)", more)
		}
	}
	no := refuse(scheduler.ModelNotFound, "no model is named %q in this mesh; %s", clip(asked, 100), there)
	no.param = "model"
	return no
}
