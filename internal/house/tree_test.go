package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const (
	// root is the repository, seen from this package's folder, where go test runs us.
	root = "../.."
	// modulePath is what every import path of this module begins with.
	modulePath = "github.com/wherry-fabric/wherry"
)

// skippedDirs hold nothing that is ours to judge; .gitignore names the same outputs.
var skippedDirs = map[string]bool{".git": true, "bin": true, "tmp": true, "node_modules": true, "target": true}

// A source is one Go file.
type source struct {
	path string // from the root, with slashes
	pkg  string // its folder as imports_test.go writes it: "." or "./fabric/shm"
	test bool
	made bool // generated: says "Code generated … DO NOT EDIT"
	text []byte
	fset *token.FileSet
	file *ast.File
}

// line is where n starts.
func (s source) line(n ast.Node) int { return s.fset.Position(n.Pos()).Line }

// lines is how many lines n covers.
func (s source) lines(n ast.Node) int {
	return s.fset.Position(n.End()).Line - s.line(n) + 1
}

// parse makes a source of a file's text.
func parse(name string, text []byte) (source, error) {
	s := source{path: name, text: text, fset: token.NewFileSet(), pkg: ".", test: strings.HasSuffix(name, "_test.go")}
	if dir := path.Dir(name); dir != "." {
		s.pkg = "./" + dir
	}
	var err error
	s.file, err = parser.ParseFile(s.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return s, err
	}
	s.made = ast.IsGenerated(s.file)
	return s, nil
}

// A tree is the repository: every file's path, and the parsed Go files.
type tree struct {
	paths   []string
	sources []source
	broken  []error // one for each file that does not parse
}

// repository is read once for all tests.
var repository = sync.OnceValues(func() (tree, error) {
	return load(os.DirFS(root))
})

// load reads a tree. Folders that the go command ignores (testdata, _x, .x) and
// other modules are listed but not parsed.
func load(files fs.FS) (tree, error) {
	var t tree
	foreign := map[string]bool{}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if skippedDirs[d.Name()] {
				return fs.SkipDir
			}
			_, statErr := fs.Stat(files, path.Join(name, "go.mod"))
			base := path.Base(name)
			hidden := name != "." && (base[0] == '.' || base[0] == '_' || base == "testdata")
			foreign[name] = foreign[path.Dir(name)] && name != "." || hidden || name != "." && statErr == nil
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		t.paths = append(t.paths, name)
		if path.Ext(name) != ".go" || foreign[path.Dir(name)] {
			return nil
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		s, err := parse(name, text)
		if err != nil {
			t.broken = append(t.broken, fmt.Errorf("%s does not parse: %w", name, err))
			return nil
		}
		t.sources = append(t.sources, s)
		return nil
	})
	return t, err
}

// loaded is the repository, or the end of the test.
func loaded(t *testing.T) tree {
	t.Helper()
	r, err := repository()
	if err != nil {
		t.Fatalf("reading the tree: %v", err)
	}
	if len(r.sources) == 0 {
		t.Fatalf("no Go files under %s: the tests look in the wrong place", root)
	}
	return r
}

// text reads a file of the repository.
func (t tree) text(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// binary reports whether a file is no text, as git decides it.
func binary(b []byte) bool { return bytes.IndexByte(b[:min(len(b), 8000)], 0) >= 0 }

// offender parses a made-up file that breaks a rule.
func offender(t *testing.T, name, text string) source {
	t.Helper()
	s, err := parse(name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}
