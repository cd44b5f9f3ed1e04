package suite

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/wherry-fabric/wherry/internal/child"
)

// childMark is the argument that makes the test binary a child of a suite.
const childMark = "suite-child"

// Parent is who started a child, and hears (Encode) and tells it things (Decode).
type Parent struct {
	*json.Encoder
	*json.Decoder
}

// Role is what a child does.
type Role func(p *Parent, args []string) error

// BeChild plays the role that this process's arguments name, and ends the process; it
// returns false if they name none.
func BeChild(roles map[string]Role) bool {
	args := flag.Args()
	if len(args) < 2 || args[0] != childMark {
		return false
	}
	err := fmt.Errorf("no role %q", args[1])
	if role := roles[args[1]]; role != nil {
		err = role(&Parent{json.NewEncoder(os.Stdout), json.NewDecoder(os.Stdin)}, args[2:])
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s %s: %v\n", childMark, args[1], err)
		os.Exit(1)
	}
	os.Exit(0)
	return true
}

// Spawn runs a role in a process of its own, which is killed at the end: the test binary is run
// again, for the same top-level test, which must call BeChild first of all.
func (r *Rig) Spawn(role string, args ...string) *child.Process {
	r.Helper()
	top, _, _ := strings.Cut(r.Name(), "/")
	cmd := exec.Command("/proc/self/exe", append([]string{"-test.run=^" + top + "$", "-test.timeout=2m", "--", childMark, role}, args...)...)
	cmd.Stderr = os.Stderr
	p, err := child.Start(cmd)
	r.Must(err)
	r.AtEnd(p.Kill)
	return p
}

// Heard is the next thing a child says.
func Heard[T any](r *Rig, p *child.Process) (v T) {
	r.Helper()
	r.Must(p.Hear(&v))
	return v
}
