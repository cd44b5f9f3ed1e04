package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityNamesItsTests: each test that docs/security.md names for a claim
// is there, and each claim of what an attacker cannot do names one.
func TestSecurityNamesItsTests(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	folder := regexp.MustCompile("`([a-z/]+)` ((?:(?:Test|Fuzz)\\w+(?:, )?)+)")
	row := regexp.MustCompile(`^\| .* \| .* \| (.*) \|$`)
	inCannot, claims, named := false, 0, 0
	for line := range strings.Lines(string(doc)) {
		line = strings.TrimSpace(line)
		inCannot = strings.HasPrefix(line, "| They cannot") || strings.HasPrefix(line, "| It cannot") || inCannot && strings.HasPrefix(line, "|")
		found := folder.FindAllStringSubmatch(line, -1)
		for _, f := range found {
			for name := range strings.SplitSeq(f[2], ", ") {
				if name = strings.TrimSpace(name); name == "" {
					continue
				}
				named++
				if !hasTest(t, f[1], name) {
					t.Errorf("%s has no test %s", f[1], name)
				}
			}
		}
		if m := row.FindStringSubmatch(line); inCannot && m != nil && m[1] != "Tests" && m[1] != "---" {
			claims++
			if len(found) == 0 {
				t.Errorf("no test stands beside: %s", line)
			}
		}
	}
	if claims < 35 || named < claims {
		t.Errorf("%d claims and %d tests were found in the document", claims, named)
	}
}

func hasTest(t *testing.T, folder, name string) bool {
	files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(folder), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}
