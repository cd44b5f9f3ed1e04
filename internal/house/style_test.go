package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

// Limits from the house style. They are for people: what does not fit on a few
// screens is not read as a whole.
const (
	maxFileLines     = 800
	maxTestFileLines = 1200
	maxFuncLines     = 70
)

// mayBeUnsafe lists who may import unsafe or hold assembly, and what for.
var mayBeUnsafe = []struct{ pkg, why string }{
	{"./internal/...", "wrapping what the kernel and the processor offer is what it is for"},
	{"./bench", "the bare socket and the shared words that a round trip is held against"},
	{"./fabric", "atomics and copies on registered memory, which lies outside the Go heap"},
	{"./fabric/shm", "rings and segments in memory shared with other processes"},
	{"./fabric/tcp", "vectored writes and epoll by raw system call, without an allocation per operation"},
	{"./inject/native/worker", "a page shared with another process, and mappings at fixed addresses"},
	{"./inject/wasm/internal/linear", "mapping windows into linear memory by address"},
	{"./inject/wasm", "linear memory that is reserved once and has windows mapped into it"},
}

// A check finds faults in one file.
type check struct {
	name  string
	tests bool // whether it judges test files too
	made  bool // whether it judges generated files too
	find  func(source) []string
	// bites is a file that breaks the rule.
	bites struct{ name, text string }
}

var checks = []check{
	{name: "gofmt", tests: true, made: true, find: unformatted,
		bites: struct{ name, text string }{"x/x.go", "package x\nvar  a=1\n"}},
	{name: "file length", tests: true, find: longFile,
		bites: struct{ name, text string }{"x/x.go", "package x\n" + strings.Repeat("\n", maxFileLines)}},
	{name: "function length", tests: true, find: longFuncs,
		bites: struct{ name, text string }{"x/x_test.go", "package x\nfunc f() {\n" + strings.Repeat("f()\n", maxFuncLines) + "}\n"}},
	{name: "init functions", tests: true, find: initFuncs,
		bites: struct{ name, text string }{"x/x.go", "package x\nfunc init() {}\n"}},
	{name: "package-level state", find: state,
		bites: struct{ name, text string }{"x/x.go", "package x\nimport \"sync\"\nvar mu sync.Mutex\n"}},
	{name: "environment", find: environment,
		bites: struct{ name, text string }{"node/x.go", "package x\nimport \"os\"\nvar home = os.Getenv(\"HOME\")\n"}},
	{name: "unsafe", find: unsafeImports,
		bites: struct{ name, text string }{"rpc/x.go", "package x\nimport _ \"unsafe\"\n"}},
}

func TestStyle(t *testing.T) {
	r := loaded(t)
	for _, err := range r.broken {
		t.Error(err)
	}
	sources := r.sources
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			for _, s := range sources {
				if s.test && !c.tests || s.made && !c.made {
					continue
				}
				for _, fault := range c.find(s) {
					t.Errorf("%s: %s", s.path, fault)
				}
			}
		})
	}
}

func TestChecksBite(t *testing.T) {
	for _, c := range checks {
		if len(c.find(offender(t, c.bites.name, c.bites.text))) == 0 {
			t.Errorf("%s: the check does not notice a file that breaks its rule", c.name)
		}
	}
	long := "package x\nfunc f() {\nt := []int{\n" + strings.Repeat("1,\n", 2*maxFuncLines) + "}\n_ = t\n}\n"
	if faults := longFuncs(offender(t, "x/x_test.go", long)); len(faults) != 0 {
		t.Errorf("a test's table counts towards its function: %v", faults)
	}
	if faults := longFuncs(offender(t, "x/x.go", long)); len(faults) == 0 {
		t.Error("outside tests a literal counts towards its function")
	}
}

func unformatted(s source) []string {
	want, err := format.Source(s.text)
	if err != nil {
		return []string{err.Error()}
	}
	if !bytes.Equal(want, s.text) {
		return []string{"not formatted; run gofmt -w " + s.path}
	}
	return nil
}

func longFile(s source) []string {
	limit := maxFileLines
	if s.test {
		limit = maxTestFileLines
	}
	if n := bytes.Count(s.text, []byte("\n")); n > limit {
		return []string{fmt.Sprintf("%d lines, at most %d; split it by idea", n, limit)}
	}
	return nil
}

func longFuncs(s source) []string {
	var faults []string
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		start, end := s.fset.Position(f.Type.Pos()).Line, s.fset.Position(f.End()).Line
		n := end - start + 1
		if s.test {
			n -= tableLines(s, f.Body)
		}
		if n > maxFuncLines {
			faults = append(faults, fmt.Sprintf("line %d: %s has %d lines, at most %d", start, f.Name.Name, n, maxFuncLines))
		}
	}
	return faults
}

// tableLines counts the lines of a body's tables: slice, array and map literals
// over several lines. A long table is no long function.
func tableLines(s source, body ast.Node) int {
	n := 0
	ast.Inspect(body, func(node ast.Node) bool {
		lit, ok := node.(*ast.CompositeLit)
		if !ok {
			return true
		}
		switch lit.Type.(type) {
		case *ast.ArrayType, *ast.MapType:
			n += s.lines(lit) - 1
			return false
		}
		return true
	})
	return n
}

func initFuncs(s source) []string {
	for _, d := range s.file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			return []string{fmt.Sprintf("line %d: an init function; construct explicitly, whoever imports a package has not asked it to act", s.line(f))}
		}
	}
	return nil
}

// stateful are types whose only use at package level is state that changes.
var stateful = []string{"sync.Mutex", "sync.RWMutex", "sync.Map", "sync.WaitGroup", "sync.Once", "sync.Cond",
	"atomic.Bool", "atomic.Int32", "atomic.Int64", "atomic.Uint32", "atomic.Uint64", "atomic.Uintptr", "atomic.Value", "atomic.Pointer"}

// state finds package-level variables that hold changing state: locks, atomic
// variables, channels, and maps made to be filled later.
func state(s source) []string {
	var faults []string
	for _, d := range s.file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			continue
		}
		for _, spec := range g.Specs {
			v := spec.(*ast.ValueSpec)
			found := statefulExpr(v.Type)
			for _, value := range v.Values {
				found = found || statefulExpr(value)
			}
			if found {
				faults = append(faults, fmt.Sprintf("line %d: %s is state at package level; it belongs to a value that someone owns", s.line(v), v.Names[0].Name))
			}
		}
	}
	return faults
}

// statefulExpr reports whether a variable's type or value shows that it changes.
func statefulExpr(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.ChanType:
		return true
	case *ast.StarExpr:
		return statefulExpr(e.X)
	case *ast.UnaryExpr:
		return statefulExpr(e.X)
	case *ast.CompositeLit:
		return statefulExpr(e.Type)
	case *ast.IndexExpr:
		return statefulExpr(e.X)
	case *ast.SelectorExpr:
		x, ok := e.X.(*ast.Ident)
		return ok && slices.Contains(stateful, x.Name+"."+e.Sel.Name)
	case *ast.CallExpr:
		f, ok := e.Fun.(*ast.Ident)
		if !ok || f.Name != "make" || len(e.Args) == 0 {
			return false
		}
		switch e.Args[0].(type) {
		case *ast.ChanType, *ast.MapType:
			return true
		}
	}
	return false
}

func environment(s source) []string {
	if matches("./cmd/...", s.pkg, s.pkg) {
		return nil
	}
	var faults []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		reads := []string{"Getenv", "LookupEnv", "ExpandEnv"}
		if ok && (x.Name == "os" || x.Name == "syscall") && slices.Contains(reads, sel.Sel.Name) {
			faults = append(faults, fmt.Sprintf("line %d: %s.%s; only a command reads the environment, a library has options", s.line(sel), x.Name, sel.Sel.Name))
		}
		return true
	})
	return faults
}

// unsafeAllowed reports whether a package is on the list.
func unsafeAllowed(pkg string) bool {
	return slices.ContainsFunc(mayBeUnsafe, func(a struct{ pkg, why string }) bool { return matches(a.pkg, pkg, pkg) })
}

func unsafeImports(s source) []string {
	if slices.Contains(s.imported(), "unsafe") && !unsafeAllowed(s.pkg) {
		return []string{s.pkg + " imports unsafe; see mayBeUnsafe for who may, and why"}
	}
	return nil
}

func TestAssembly(t *testing.T) {
	for _, p := range loaded(t).paths {
		if path.Ext(p) == ".s" && !strings.Contains(p, "testdata/") && !unsafeAllowed("./"+path.Dir(p)) {
			t.Errorf("%s: assembly outside the packages of mayBeUnsafe", p)
		}
	}
}

// docFaults finds packages that do not say what they are.
func docFaults(sources []source) []string {
	said := map[string]bool{}
	names := map[string]string{}
	var faults []string
	for _, s := range sources {
		if s.test {
			continue
		}
		name := s.file.Name.Name
		names[s.pkg] = name
		if s.file.Doc == nil {
			continue
		}
		doc := s.file.Doc.Text()
		if name != "main" && !strings.HasPrefix(doc, "Package "+name+" ") {
			faults = append(faults, fmt.Sprintf("%s: its doc comment begins with %q, not %q", s.path, firstWords(doc), "Package "+name+" "))
		}
		said[s.pkg] = said[s.pkg] || doc != ""
	}
	for pkg := range names {
		if !said[pkg] {
			faults = append(faults, fmt.Sprintf("%s: no file has a doc comment on its package clause", pkg))
		}
	}
	slices.Sort(faults)
	return faults
}

func firstWords(doc string) string {
	words := strings.Fields(doc)
	return strings.Join(words[:min(len(words), 3)], " ")
}

func TestPackageDocs(t *testing.T) {
	for _, f := range docFaults(loaded(t).sources) {
		t.Error(f)
	}
	mute := offender(t, "x/x.go", "package x\n")
	wrong := offender(t, "y/y.go", "// Some words.\npackage y\n")
	if n := len(docFaults([]source{mute, wrong})); n != 2 {
		t.Errorf("%d of 2 packages without a proper doc comment were noticed", n)
	}
}
