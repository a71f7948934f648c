package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"relay/scheduler"
)

// modelShape is a model in OpenAI's shape, with what else a client may want.
type modelShape struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	// UID names the model even when its name is given to another one.
	UID string `json:"uid"`
	// ContextLength is in tokens; it is left out while unknown.
	ContextLength int `json:"context_length,omitempty"`
}

func shapeOf(m scheduler.ServedModel) modelShape {
	return modelShape{ID: m.Name, Object: "model", Created: m.Created, OwnedBy: "relay", UID: m.UID, ContextLength: m.Context}
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

// resolve finds the model that a name, uid or alias means now.
func (d *Door) resolve(name string) (scheduler.ServedModel, bool) {
	if s, ok := d.opt.Scheduler.(interface {
		Resolve(name string) (scheduler.ServedModel, bool)
	}); ok {
		return s.Resolve(name)
	}
	models := d.models()
	for _, means := range []func(scheduler.ServedModel) bool{
		func(m scheduler.ServedModel) bool { return m.Name == name },
		func(m scheduler.ServedModel) bool { return m.UID == name },
		func(m scheduler.ServedModel) bool { return slices.Contains(m.Aliases, name) },
	} {
		if i := slices.IndexFunc(models, means); i >= 0 {
			return models[i], true
		}
	}
	return scheduler.ServedModel{}, false
}

func (d *Door) listModels(w http.ResponseWriter, _ *http.Request, _ *call) {
	list := []modelShape{}
	for _, m := range d.models() {
		list = append(list, shapeOf(m))
	}
	writeJSON(w, http.StatusOK, encodeJSON(struct {
		Object string       `json:"object"`
		Data   []modelShape `json:"data"`
	}{"list", list}))
}

func (d *Door) showModel(w http.ResponseWriter, r *http.Request, c *call) {
	asked := strings.TrimPrefix(r.URL.Path, "/v1/models/")
	c.model = asked
	models := d.models()
	for _, by := range []func(scheduler.ServedModel) string{
		func(m scheduler.ServedModel) string { return m.Name },
		func(m scheduler.ServedModel) string { return m.UID },
	} {
		for _, m := range models {
			if by(m) == asked {
				writeJSON(w, http.StatusOK, encodeJSON(shapeOf(m)))
				return
			}
		}
	}
	d.refuse(w, c, unknownModel(asked, models))
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
