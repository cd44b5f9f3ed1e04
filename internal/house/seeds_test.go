package house

import (
	"bytes"
	"go/ast"
	"regexp"
	"testing"
)

// simulation is a test that scripts/soak.sh runs again and again.
var simulation = regexp.MustCompile(`^Test.*(Sim|Soak)`)

// seedFlags are what scripts/soak.sh gives new seeds by: internal/seeds, or
// rapid's flag.
var seedFlags = [][]byte{[]byte(`= seeds.Flags(`), []byte(`"pgregory.net/rapid"`)}

// seedless lists the packages whose simulations nobody can give a seed.
func seedless(sources []source) []string {
	var order []string
	seen, takes := map[string]bool{}, map[string]bool{}
	for _, s := range sources {
		if !s.test {
			continue
		}
		for _, f := range seedFlags {
			takes[s.pkg] = takes[s.pkg] || bytes.Contains(s.text, f)
		}
		for _, d := range s.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && simulation.MatchString(fn.Name.Name) && !seen[s.pkg] {
				seen[s.pkg] = true
				order = append(order, s.pkg)
			}
		}
	}
	var out []string
	for _, pkg := range order {
		if !takes[pkg] {
			out = append(out, pkg)
		}
	}
	return out
}

// TestSeedsCanBeGiven: a soak that repeats the same history finds nothing.
func TestSeedsCanBeGiven(t *testing.T) {
	for _, pkg := range seedless(loaded(t).sources) {
		t.Errorf(`%s: its simulations take no seed: run it with internal/seeds, as inject/travel does, or use rapid`, pkg)
	}
	bad, err := parse("x/x_test.go", []byte("package x\nimport \"testing\"\nfunc TestSimX(t *testing.T) {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := seedless([]source{bad}); len(got) != 1 {
		t.Errorf("a simulation without a seed is not noticed: %v", got)
	}
}
