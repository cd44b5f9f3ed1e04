package house

import (
	"os"
	"os/exec"
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
		{"riscv64", []string{"vet", "./..."}},
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
