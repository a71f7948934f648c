package main

import (
	"fmt"
	"strings"
)

// A tool is a program that a build needs: any one of names will do.
type tool struct {
	names     []string
	apt, brew string // the package that has it
}

func tools() []tool {
	return []tool{
		{[]string{"npm"}, "npm", "node"},
		{[]string{"git"}, "git", "git"},
		{[]string{"cmake"}, "cmake", "cmake"},
		{[]string{"ninja"}, "ninja-build", "ninja"},
		{[]string{"cc", "gcc", "clang"}, "gcc", ""},
		{[]string{"c++", "g++", "clang++"}, "g++", ""},
	}
}

// checkTools names all that is missing at once, with the line to get it.
func (b *builder) checkTools(look func(string) (string, error)) error {
	var missing, packages []string
	compiler := false
	for _, t := range tools() {
		found := false
		for _, name := range t.names {
			_, err := look(name)
			found = found || err == nil
		}
		if found {
			continue
		}
		missing = append(missing, t.names[0])
		switch {
		case b.goos != "darwin":
			packages = append(packages, t.apt)
		case t.brew == "":
			compiler = true
		default:
			packages = append(packages, t.brew)
		}
	}
	if missing == nil {
		return nil
	}
	var lines []string
	switch {
	case b.goos == "darwin":
		if compiler {
			lines = append(lines, "xcode-select --install")
		}
		if packages != nil {
			lines = append(lines, "brew install "+strings.Join(packages, " "))
		}
	case b.goos == "linux":
		lines = append(lines, "sudo apt-get install -y "+strings.Join(packages, " "))
	}
	msg := "building the engine needs " + strings.Join(missing, ", ") + ", not found in PATH"
	if lines != nil {
		msg += "; install with:\n  " + strings.Join(lines, "\n  ")
	}
	return fmt.Errorf("%s", msg)
}
