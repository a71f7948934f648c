package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"relay/scheduler"
)

// root is the module's folder, seen from this package.
const root = "../.."

// sources parses every Go file of the module that is not a test, by folder.
func sources(t *testing.T) (folders map[string][]*ast.File, files *token.FileSet) {
	t.Helper()
	folders, files = map[string][]*ast.File{}, token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && d.Name() != ".."):
			return filepath.SkipDir
		case d.IsDir(), !strings.HasSuffix(path, ".go"), strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		folders[filepath.ToSlash(folder)] = append(folders[filepath.ToSlash(folder)], file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(folders) < 10 {
		t.Fatalf("only %d packages were found: %v", len(folders), folders)
	}
	return folders, files
}

// importsOf lists what a package imports, module paths without their "relay/".
func importsOf(files []*ast.File) []string {
	var list []string
	for _, f := range files {
		for _, i := range f.Imports {
			path, _ := strconv.Unquote(i.Path.Value)
			list = append(list, path)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// TestImportsGoOneWay holds the shape of the house: cmd, api, scheduler, and
// the three leaves, which do not know one another.
func TestImportsGoOneWay(t *testing.T) {
	forbidden := map[string][]string{
		"api":       {"relay/cmd", "relay/llama"},
		"scheduler": {"relay/cmd", "relay/api"},
		"p2p":       {"relay/cmd", "relay/api", "relay/scheduler", "relay/store", "relay/llama"},
		"store":     {"relay/cmd", "relay/api", "relay/scheduler", "relay/p2p", "relay/llama"},
		"llama":     {"relay/cmd", "relay/api", "relay/scheduler", "relay/p2p", "relay/store"},
	}
	folders, _ := sources(t)
	for folder, files := range folders {
		top, _, _ := strings.Cut(folder, "/")
		for _, path := range importsOf(files) {
			for _, bad := range forbidden[top] {
				if path == bad || strings.HasPrefix(path, bad+"/") {
					t.Errorf("%s imports %s", folder, path)
				}
			}
		}
	}
}

// TestDecisionsArePure: what decides imports no network, no clock, no database
// and nothing of relay's own that does. Of package time it has the types and the
// constants: the time is told to it.
func TestDecisionsArePure(t *testing.T) {
	folders, files := sources(t)
	for _, folder := range []string{
		"scheduler/leadership", "scheduler/placement", "scheduler/shards", "scheduler/ledger", "scheduler/eviction",
		"api/chat", "api/responses", "api/messages", "api/continuation", "scheduler/ways", "scheduler/residency", "scheduler/setback", "scheduler/demand", "scheduler/routing", "scheduler/speed", "scheduler/admission", "p2p/keys/quota",
	} {
		if len(folders[folder]) == 0 {
			t.Errorf("%s is not there", folder)
		}
		for _, path := range importsOf(folders[folder]) {
			if path == "os" || path == "net" || strings.HasPrefix(path, "net/") || strings.Contains(path, ".") ||
				strings.HasPrefix(path, "relay/") && path != "relay/api/chat" && !strings.HasPrefix(path, "relay/scheduler/") {
				t.Errorf("%s imports %s", folder, path)
			}
		}
		for _, f := range folders[folder] {
			for _, use := range clockUses(f) {
				t.Errorf("%s: %s reads the clock or waits for it", files.Position(use.Pos()), use.Sel.Name)
			}
		}
	}
}

// TestClockUsesAreFound: whatever package time is called in a file.
func TestClockUsesAreFound(t *testing.T) {
	for _, tc := range []struct {
		body string
		want int
	}{
		{"import \"time\"; var a, b = time.Now(), time.Since(c)", 2},
		{"import clock \"time\"; var a = clock.Now", 1},
		{"import . \"time\"; var a = Now()", 1},
		{"import \"time\"; var a time.Duration = time.Second; var b time.Time; var c = b.Add(a)", 0},
		{"var time struct{ Now int }; var a = time.Now", 0},
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x; "+tc.body, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(clockUses(f)); got != tc.want {
			t.Errorf("%s: %d uses, want %d", tc.body, got, tc.want)
		}
	}
}

// clockUses are the places where a file reads the clock, or waits for it. An
// import without a name of its own is one itself: what it brings is not told
// apart.
func clockUses(f *ast.File) (uses []*ast.SelectorExpr) {
	name := ""
	for _, i := range f.Imports {
		if i.Path.Value != `"time"` {
			continue
		}
		if name = "time"; i.Name != nil {
			name = i.Name.Name
		}
		if name == "." {
			return []*ast.SelectorExpr{{X: i.Name, Sel: i.Name}}
		}
	}
	if name == "" {
		return nil
	}
	clock := []string{"Now", "Since", "Until", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Sleep"}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains(clock, s.Sel.Name) {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == name {
				uses = append(uses, s)
			}
		}
		return true
	})
	return uses
}

func TestOnlyStoreOpensBadger(t *testing.T) {
	folders, _ := sources(t)
	for folder, files := range folders {
		for _, path := range importsOf(files) {
			if strings.HasPrefix(path, "github.com/dgraph-io/badger") && folder != "store" {
				t.Errorf("%s imports %s", folder, path)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	folders, _ := sources(t)
	for folder, files := range folders {
		if !slices.ContainsFunc(files, func(f *ast.File) bool { return f.Doc != nil && len(f.Doc.Text()) > 40 }) {
			t.Errorf("%s has no package comment", folder)
		}
	}
}

// TestNoPackageIsADrawer forbids the names under which anything may be put.
func TestNoPackageIsADrawer(t *testing.T) {
	folders, _ := sources(t)
	for folder := range folders {
		if slices.Contains([]string{"util", "utils", "common", "helpers", "types", "misc"}, filepath.Base(folder)) {
			t.Errorf("%s is named after nothing", folder)
		}
	}
}

// TestReasonsAreInTheList finds the reason of every sentinel error of the
// leaves, every reason that a method answers as a literal, and every constant
// of the packages that decide, and looks it up.
func TestReasonsAreInTheList(t *testing.T) {
	folders, files := sources(t)
	known := map[string]bool{}
	for _, r := range scheduler.Reasons() {
		if known[string(r)] {
			t.Errorf("%s is listed twice", r)
		}
		known[string(r)] = true
	}
	seen := map[string]int{}
	look := func(kind string, e ast.Expr) {
		literal, ok := e.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return
		}
		seen[kind]++
		if reason, _ := strconv.Unquote(literal.Value); !known[reason] {
			t.Errorf("%s: %q is not in the list of reasons", files.Position(e.Pos()), reason)
		}
	}
	for folder, list := range folders {
		top, _, _ := strings.Cut(folder, "/")
		if top != "p2p" && top != "store" && top != "llama" && folder != "scheduler/placement" && folder != "scheduler/ledger" {
			continue
		}
		for _, f := range list {
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					if name, ok := n.Fun.(*ast.Ident); ok && name.Name == "fault" && len(n.Args) == 2 {
						look("sentinels", n.Args[0])
					}
				case *ast.FuncDecl:
					if n.Recv == nil || n.Name.Name != "Reason" {
						return true
					}
					ast.Inspect(n.Body, func(n ast.Node) bool {
						if r, ok := n.(*ast.ReturnStmt); ok && len(r.Results) == 1 {
							look("methods", r.Results[0])
						}
						return true
					})
				case *ast.GenDecl:
					if folder != "scheduler/placement" || n.Tok != token.CONST {
						return true
					}
					for _, s := range n.Specs {
						for _, v := range s.(*ast.ValueSpec).Values {
							look("constants", v)
						}
					}
				}
				return true
			})
		}
	}
	for kind, least := range map[string]int{"sentinels": 20, "methods": 1, "constants": 6} {
		if seen[kind] < least {
			t.Errorf("only %d %s were found: how are they made now?", seen[kind], kind)
		}
	}
}

// TestReasonsListIsWhole: every constant of type Reason is listed.
func TestReasonsListIsWhole(t *testing.T) {
	folders, _ := sources(t)
	declared := 0
	for _, f := range folders["scheduler"] {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				if id, ok := v.Type.(*ast.Ident); ok && id.Name == "Reason" {
					declared += len(v.Names)
				}
			}
		}
	}
	if listed := len(scheduler.Reasons()); listed != declared {
		t.Errorf("%d reasons are declared, %d are listed", declared, listed)
	}
}
