package house

import (
	"os"
	"os/exec"
	"path"
	"regexp"
	"testing"
)

// TestBuilds checks that the tree needs no C compiler and no particular processor:
// it builds for what we release, and vet accepts it (tests included) where we only promise that it could.
func TestBuilds(t *testing.T) {
	cases := []struct {
		arch string
		args []string
	}{
		{"amd64", []string{"build", "-buildvcs=false", "-pgo=off", "./..."}},
		{"arm64", []string{"build", "-buildvcs=false", "-pgo=off", "./..."}},
		{"riscv64", []string{"vet", "-pgo=off", "./..."}},
	}
	for _, c := range cases {
		t.Run(c.arch, func(t *testing.T) {
			cmd := exec.Command("go", c.args...)
			cmd.Dir = root
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+c.arch, "GOWORK=off")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("CGO_ENABLED=0 GOARCH=%s go %v: %v\n%s", c.arch, c.args, err, out)
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
