package house

import (
	"encoding/json"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dependencyDoc has one line of a table for each module that this one imports.
const dependencyDoc = "docs/dependencies.md"

// dependencyLine is such a line: its first cell is the module's path in backquotes.
var dependencyLine = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|(.*)$")

// A requirement is a line of go.mod.
type requirement struct {
	Path     string
	Indirect bool
}

// requirements reads go.mod.
func requirements(t *testing.T) []requirement {
	t.Helper()
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod edit -json: %v", err)
	}
	var mod struct{ Require []requirement }
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	return mod.Require
}

// used maps each module that a file of ours imports, tests included, to one such file. A path that no
// requirement covers stands for itself.
func used(sources []source, required []requirement) map[string]string {
	modules := map[string]string{}
	for _, s := range sources {
		for _, p := range s.imported() {
			if !matches(outside, p, s.pkg) {
				continue
			}
			module := p
			for _, r := range required {
				if matches(r.Path+"/...", p, s.pkg) && (module == p || len(r.Path) > len(module)) {
					module = r.Path
				}
			}
			modules[module] = s.path
		}
	}
	return modules
}

// moduleFaults compares what is imported, what go.mod requires and what the
// document explains. A module that go.mod requires only indirectly may have its
// line already if it is about to be used; go mod tidy drops it if it is not.
func moduleFaults(imported map[string]string, required []requirement, listed []string) []string {
	var faults []string
	for module, file := range imported {
		if !slices.ContainsFunc(required, func(r requirement) bool { return r.Path == module }) {
			faults = append(faults, module+": imported by "+file+", but go.mod does not require it")
		} else if !slices.Contains(listed, module) {
			faults = append(faults, module+": imported by "+file+", but has no line in "+dependencyDoc)
		}
	}
	for _, r := range required {
		if !r.Indirect && imported[r.Path] == "" {
			faults = append(faults, r.Path+": required by go.mod, but nothing imports it; run go mod tidy")
		}
	}
	for i, module := range listed {
		if !slices.ContainsFunc(required, func(r requirement) bool { return r.Path == module }) {
			faults = append(faults, module+": has a line in "+dependencyDoc+", but go.mod does not require it")
		}
		if slices.Contains(listed[:i], module) {
			faults = append(faults, module+": has two lines in "+dependencyDoc)
		}
	}
	slices.Sort(faults)
	return faults
}

func TestModules(t *testing.T) {
	r := loaded(t)
	var listed []string
	for _, m := range dependencyLine.FindAllStringSubmatch(string(r.text(t, dependencyDoc)), -1) {
		listed = append(listed, m[1])
		for cell := range strings.SplitSeq(strings.TrimSuffix(strings.TrimSpace(m[2]), "|"), "|") {
			if strings.TrimSpace(cell) == "" {
				t.Errorf("%s: %s: a cell is empty", dependencyDoc, m[1])
			}
		}
	}
	required := requirements(t)
	for _, f := range moduleFaults(used(r.sources, required), required, listed) {
		t.Error(f)
	}
}

func TestModuleRulesBite(t *testing.T) {
	required := []requirement{{"example.org/a", false}, {"example.org/a/v2", false}, {"example.org/idle", false}, {"example.org/deep", true}}
	s := offender(t, "x/x.go", `package x
import (
	_ "encoding/json"
	_ "example.org/a/v2/sub"
	_ "example.org/a"
	_ "example.org/absent/sub"
)
`)
	got := moduleFaults(used([]source{s}, required), required, []string{"example.org/a", "example.org/gone", "example.org/a"})
	want := []string{
		"example.org/a/v2: imported by x/x.go, but has no line in docs/dependencies.md",
		"example.org/a: has two lines in docs/dependencies.md",
		"example.org/absent/sub: imported by x/x.go, but go.mod does not require it",
		"example.org/gone: has a line in docs/dependencies.md, but go.mod does not require it",
		"example.org/idle: required by go.mod, but nothing imports it; run go mod tidy",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
