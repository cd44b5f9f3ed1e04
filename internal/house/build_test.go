package house

import (
	"os"
	"os/exec"
	"path"
	"regexp"
	"testing"
)

// TestBuilds checks that the tree needs no C compiler and no particular processor: it builds for what we release.
// (make soak vets it for one more.)
func TestBuilds(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			cmd := exec.Command("go", "build", "-buildvcs=false", "-pgo=off", "./...")
			cmd.Dir = root
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOWORK=off")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("CGO_ENABLED=0 GOARCH=%s %v: %v\n%s", arch, cmd.Args, err, out)
			}
		})
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
