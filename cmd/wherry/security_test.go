package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// securityNames are what a row names: packages, and tests that are in the package named last before them.
var securityNames = regexp.MustCompile("`([a-z0-9]+(?:/[a-z0-9]+)*)`|each transport's|\\b((?:Test|Fuzz|Benchmark)[A-Z]\\w*)(…)?")

// TestSecurityNamesItsTests: whatever docs/security.md says in a table, but for the gaps that are known, names a test that tries it, and each test that the document
// names, wherever, is there.
func TestSecurityNamesItsTests(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	claims, named, section := 0, 0, ""
	for line := range strings.Lines(string(doc)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "#") {
			section = line
		}
		var folders []string
		here := 0
		for _, m := range securityNames.FindAllStringSubmatch(line, -1) {
			switch name := m[2]; {
			case m[0] == "each transport's":
				folders = []string{"fabric/tcp", "fabric/shm"}
			case m[1] != "":
				folders = []string{m[1]}
			default:
				here++
				if folders == nil {
					t.Errorf("no package stands before %s: %s", name, line)
				}
				for _, folder := range folders {
					if !hasTest(t, folder, name, m[3] != "") {
						t.Errorf("%s has no test %s", folder, name)
					}
				}
			}
		}
		named += here
		if row := strings.Split(line, " | "); len(row) < 3 || section == "## Known gaps" || strings.HasPrefix(row[len(row)-1], "Test") || strings.HasPrefix(line, "| ---") {
			continue
		}
		if claims++; here == 0 {
			t.Errorf("no test stands beside: %s", line)
		}
	}
	if claims < 90 || named < 250 {
		t.Errorf("%d claims and %d tests were found in the document", claims, named)
	}
}

// hasTest reports whether a package has a test of that name, or that begins so, in a file that is built.
func hasTest(t *testing.T, folder, name string, begins bool) bool {
	files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(folder), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	end := "("
	if begins {
		end = ""
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+name+end) && !strings.HasPrefix(string(text), "//go:build ignore") {
			return true
		}
	}
	return false
}
