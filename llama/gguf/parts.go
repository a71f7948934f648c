package gguf

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
)

// partPattern is how llama.cpp names the parts of a split model.
var partPattern = regexp.MustCompile(`(?s)\A(.*)-([0-9]{5})-of-([0-9]{5})\.gguf\z`)

// partPath is the path of a part, counted from 1, beside the file at path, which
// is a part itself.
func partPath(path string, no int) string {
	dir, name := filepath.Split(path)
	m := partPattern.FindStringSubmatch(name)
	return fmt.Sprintf("%s%s-%05d-of-%s.gguf", dir, m[1], no, m[3])
}

// isPart says whether path has the name of part no of count, counted from 1.
func isPart(path string, no, count uint64) bool {
	m := partPattern.FindStringSubmatch(filepath.Base(path))
	return m != nil && m[2] == fmt.Sprintf("%05d", no) && m[3] == fmt.Sprintf("%05d", count)
}

// A set is all files of a model, in order.
type set struct {
	paths   []string
	walks   []*walk
	tensors map[string]bool // by name
}

// walkSet walks all files of the model that path belongs to, with walkOne for
// each.
func walkSet(path string, walkOne func(path string, b *budget) (*walk, error)) (set, error) {
	b := newBudget()
	given, err := walkOne(path, b)
	if err != nil {
		return set{}, err
	}
	wrong := func(path string, err error) (set, error) {
		return set{}, fmt.Errorf("%w: %s: %w", ErrInvalid, path, err)
	}
	s, err := given.split()
	switch {
	case err != nil:
		return wrong(path, err)
	case s.count <= 1:
		return set{[]string{path}, []*walk{given}, b.tensors}, nil
	case s.count > maxParts:
		return wrong(path, fmt.Errorf("it is one of %d parts; more than %d are not read", s.count, maxParts))
	case !isPart(path, s.no+1, s.count):
		return wrong(path, fmt.Errorf(
			"it is part %d of %d of a split model, and llama.cpp finds those by their names: it must be called NAME-%05d-of-%05d.gguf and lie beside the others",
			s.no+1, s.count, s.no+1, s.count))
	}
	paths, walks := make([]string, s.count), make([]*walk, s.count)
	for i := range paths {
		paths[i] = partPath(path, i+1)
		if walks[i] = given; uint64(i) != s.no {
			if walks[i], err = walkOne(paths[i], b); err != nil {
				return set{}, fmt.Errorf("part %d of %d: %w", i+1, s.count, err)
			}
		}
	}
	first := walks[0]
	for i, w := range walks {
		if err := w.partOf(first, i, len(walks)); err != nil {
			return wrong(paths[i], err)
		}
	}
	if want, _ := first.number(splitTensors); want != uint64(len(b.tensors)) {
		return wrong(paths[0], fmt.Errorf("it says that its parts have %d tensors together, and they have %d: one is of another model", want, len(b.tensors)))
	}
	return set{paths, walks, b.tensors}, nil
}

// The keys that every part of a split model has.
const (
	splitNo      = "split.no"
	splitCount   = "split.count"
	splitTensors = "split.tensors.count"
)

// A split is what a file says about the parts of its model.
type split struct{ no, count uint64 }

// split reads it. A file that is whole has a count of 0 or 1.
func (w *walk) split() (split, error) {
	if !w.has(splitCount) {
		return split{}, nil
	}
	// llama.cpp takes no other types.
	count, ok1 := w.get(splitCount).(uint16)
	no, ok2 := w.get(splitNo).(uint16)
	_, ok3 := w.get(splitTensors).(int32)
	s := split{uint64(no), uint64(count)}
	switch {
	case count <= 1 && ok1:
		return split{}, nil
	case !ok1, !ok2, !ok3:
		return s, errors.New("it is a part of a split model and does not say which, in the numbers that llama.cpp wants")
	case no >= count:
		return s, fmt.Errorf("it says that it is part %d of %d", s.no+1, s.count)
	}
	return s, nil
}

// partOf checks that w is part i of count of the model that first begins.
func (w *walk) partOf(first *walk, i, count int) error {
	s, err := w.split()
	if err != nil {
		return err
	}
	if s.no != uint64(i) || s.count != uint64(count) {
		said := "is no part of a split model"
		if s.count > 1 {
			said = "says that it is part " + strconv.FormatUint(s.no+1, 10) + " of " + strconv.FormatUint(s.count, 10)
		}
		return fmt.Errorf("it has the name of part %d of %d, and %s", i+1, count, said)
	}
	const arch = "general.architecture"
	if w.get(splitTensors) != first.get(splitTensors) || w.has(arch) && w.textOf(arch) != first.textOf(arch) {
		return errors.New("it is a part of another model than the first part")
	}
	return nil
}
