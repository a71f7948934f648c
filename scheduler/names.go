package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// nameAliases says whose each alias is. Names, uids and CIDs come first. Where two models have
// one alias, written on two sides of a cut, the older record owns it, as with names; the
// other has lost it.
func (v *view) nameAliases() {
	names := map[string]bool{}
	for _, m := range v.models {
		names[m.Name], names[m.uid], names[m.CID] = true, true, true
	}
	inOrder := slices.SortedFunc(slices.Values(v.models), func(a, b *modelView) int {
		return cmp.Or(a.version.Compare(b.version), cmp.Compare(a.uid, b.uid))
	})
	for _, m := range inOrder {
		for _, alias := range m.Aliases {
			if !names[alias] && v.alias[alias] == nil {
				v.alias[alias] = m
			}
		}
	}
}

// resolve finds a model as find does, and else by an alias.
func (v *view) resolve(name string) *modelView {
	if m := v.find(name); m != nil {
		return m
	}
	return v.alias[name]
}

// unknown refuses a name that means no model, or none to whoever wants its true name.
func (v *view) unknown(name string) *Error {
	text := fmt.Sprintf("no model %q in this mesh; %s", name, v.names())
	if m := v.alias[name]; m != nil {
		text = fmt.Sprintf("%q is an alias of model %q: name that one here", name, m.shown)
	}
	return &Error{Why: ModelNotFound, Message: text, Retry: RetryNever}
}

// aliasesOf are the aliases that mean a model, and those that it has lost, with the name
// of the model that each of them means.
func (v *view) aliasesOf(m *modelView) (own []string, lost map[string]string) {
	own = []string{}
	for _, alias := range m.Aliases {
		is := v.alias[alias]
		if is == nil { // Something else than an alias, perhaps of the same model.
			is = v.find(alias)
		}
		if is == m {
			own = append(own, alias)
			continue
		}
		if lost == nil {
			lost = map[string]string{}
		}
		lost[alias] = is.shown
	}
	return own, lost
}

// calledOther is the model other than m of which something is a name, a uid, a CID or an
// alias, or nil.
func (v *view) calledOther(m *modelView, name string) *modelView {
	if o := v.find(name); o != nil && o != m {
		return o
	}
	return v.aliasedOther(m, name)
}

// aliasedOther is the model other than m that has an alias, lost or not; or nil.
func (v *view) aliasedOther(m *modelView, alias string) *modelView {
	if i := slices.IndexFunc(v.models, func(o *modelView) bool { return o != m && slices.Contains(o.Aliases, alias) }); i >= 0 {
		return v.models[i]
	}
	return nil
}

// nameFree refuses the name of a new model that is an alias of another one.
func (v *view) nameFree(name string) error {
	if o := v.aliasedOther(nil, name); o != nil {
		return Errorf(NameTaken, "%q is an alias of model %q: choose another name, or take it away there first (relay model set %s --alias '')", name, o.shown, o.shown)
	}
	return nil
}

// called are the aliases of a model called name that has some and gets more, of which ""
// takes those away that were there before. m is nil where the model is new.
func (v *view) called(m *modelView, name string, has, more []string) ([]string, error) {
	list := slices.Clone(has)
	for _, alias := range more {
		switch o := v.calledOther(m, alias); {
		case alias == "" && m != nil:
			list = nil
			continue
		case alias == name:
			return nil, Errorf(InvalidRequest, "%q is its name already", alias)
		case o != nil:
			return nil, Errorf(NameTaken, "%q cannot be an alias: it means model %q", alias, o.shown)
		}
		if !slices.Contains(list, alias) {
			list = append(list, alias)
		}
	}
	return list, checkAliases(list)
}

func checkAliases(list []string) error {
	if len(list) > maxAliases {
		return Errorf(InvalidRequest, "%d aliases: %d are the most", len(list), maxAliases)
	}
	for i, alias := range list {
		if err := CheckModelName(alias); err != nil {
			return fmt.Errorf("alias %q: %w", alias, err)
		}
		if slices.Contains(list[:i], alias) {
			return Errorf(InvalidRequest, "alias %q is there twice", alias)
		}
	}
	return nil
}

// aliasChanges says what became of aliases.
func aliasChanges(was, is []string) (changed []string) {
	without := func(a, b []string) string {
		return strings.Join(slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) }), ", ")
	}
	if gone := without(was, is); gone != "" {
		changed = append(changed, "no longer called "+gone)
	}
	if came := without(is, was); came != "" {
		changed = append(changed, "also called "+came)
	}
	return changed
}

// contested refuses to make next of a model's record where another model has its name, or
// an alias of it: the older record owns those, and a change would hand them to the other.
func (v *view) contested(m *modelView, next Model) error {
	for _, o := range v.models {
		if o != m && o.Name == m.Name {
			return Errorf(NameTaken, "there are two models called %q: remove one of them first (relay model ls)", m.Name)
		}
	}
	for _, alias := range next.Aliases {
		if o := v.aliasedOther(m, alias); o != nil {
			return Errorf(NameTaken, "models %q and %q both have the alias %q: take it away from one of them first (relay model set %s --alias '')", m.shown, o.shown, alias, m.shown)
		}
	}
	return nil
}

// fallback is the model that may answer in a model's stead, or nil.
func (v *view) fallback(m *modelView) *modelView {
	if o := v.model[m.Fallback]; o != nil && o != m && o.Kind == m.Kind {
		return o
	}
	return nil
}

// fallbackFor finds the model that is to answer in a model's stead; "" is none.
func (v *view) fallbackFor(m *modelView, name string) (uid, shown string, err error) {
	if name == "" {
		return "", "", nil
	}
	switch o := v.find(name); {
	case o == nil:
		return "", "", v.unknown(name)
	case o == m:
		return "", "", Errorf(InvalidRequest, "model %q cannot answer in its own stead", m.shown)
	case o.Kind != m.Kind:
		return "", "", Errorf(InvalidRequest, "model %q is for %s and %q for %s: it cannot answer in its stead", o.shown, o.Kind, m.shown, m.Kind)
	default:
		return o.uid, o.shown, nil
	}
}

// leanOn says which models have a model for their fallback.
func (v *view) leanOn(m *modelView) (texts []string) {
	for _, o := range v.models {
		if o.Fallback == m.uid {
			texts = append(texts, fmt.Sprintf("model %q had it for its fallback, and has none now", o.shown))
		}
	}
	return texts
}
