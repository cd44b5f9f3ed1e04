package house

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"regexp"
	"testing"
)

// TestBuilds checks that the tree needs no C compiler and no particular processor: it builds for what we release.
// (make soak vets it for one more.) For amd64 that is with the tag that the tests have, so that each package is compiled
// once for all of them; the other builds without it, as it is released (TestTags).
func TestBuilds(t *testing.T) {
	for arch, tags := range map[string]string{"amd64": "invariants", "arm64": ""} {
		t.Run(arch, func(t *testing.T) {
			cmd := exec.Command("go", "build", "-buildvcs=false", "-pgo=off", "-ldflags=-w", "-tags="+tags, "./...")
			cmd.Dir = root
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOWORK=off")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("CGO_ENABLED=0 GOARCH=%s %v: %v\n%s", arch, cmd.Args, err, out)
			}
		})
	}
}

// TestStatic: wherry links no package that loads shared objects, from wherever it would come.
func TestStatic(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "./cmd/wherry", "./cmd/wherry-llvm")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	both, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command("go", "list", "-deps", "./cmd/wherry")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	one, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	const loader = "github.com/ebitengine/purego"
	if !bytes.Contains(both, []byte(loader)) || bytes.Contains(one, []byte(loader)) {
		t.Errorf("%s belongs into cmd/wherry-llvm (it is there: %v) and not into cmd/wherry (it is there: %v)",
			loader, bytes.Contains(both, []byte(loader)), bytes.Contains(one, []byte(loader)))
	}
}

// TestTags: what builds otherwise with the tag invariants is one package, so that vet need look at no other twice.
func TestTags(t *testing.T) {
	r := loaded(t)
	constraint := regexp.MustCompile(`(?m)^//go:build.*\binvariants\b`)
	found := 0
	for _, p := range r.paths {
		if path.Ext(p) != ".go" || !constraint.Match(r.text(t, p)) {
			continue
		}
		if found++; path.Dir(p) != "internal/invariants" {
			t.Errorf("%s depends on the tag invariants; ask invariants.Enabled, or have the Makefile's vet look at its package without the tag too", p)
		}
	}
	if found != 2 {
		t.Errorf("%d files depend on the tag, and not internal/invariants's two", found)
	}
}
