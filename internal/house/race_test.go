package house

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// pure is the pattern by which the Makefile leaves packages out of the race detector's run.
func pure(t *testing.T) *regexp.Regexp {
	m := regexp.MustCompile(`(?m)^PURE +\?= (.*)$`).FindSubmatch(loaded(t).text(t, "Makefile"))
	if m == nil {
		t.Fatal("the Makefile has no line PURE")
	}
	return regexp.MustCompile(strings.ReplaceAll(string(m[1]), "$$", "$"))
}

// goroutines lists the lines that start one, and the packages that share memory between them.
func goroutines(s source) []string {
	var faults []string
	for _, p := range s.imported() {
		if p == "sync" || p == "sync/atomic" {
			faults = append(faults, "imports "+p)
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if g, ok := n.(*ast.GoStmt); ok {
			faults = append(faults, fmt.Sprintf("line %d starts a goroutine", s.line(g)))
		}
		return true
	})
	return faults
}

// TestPure: what the race detector does not watch has nothing that it could find. It takes a simulation ten times as long.
func TestPure(t *testing.T) {
	pattern, found := pure(t), 0
	for _, s := range loaded(t).sources {
		if !pattern.MatchString(strings.TrimPrefix(s.pkg, ".")) {
			continue
		}
		found++
		for _, fault := range goroutines(s) {
			t.Errorf("%s %s: take its package out of the Makefile's PURE", s.path, fault)
		}
	}
	if found == 0 {
		t.Errorf("no source matches %s", pattern)
	}
	if faults := goroutines(offender(t, "x/x.go", "package x\nimport \"sync\"\nfunc f() { go f() }\n")); len(faults) != 2 {
		t.Errorf("the rule does not bite: %v", faults)
	}
}
