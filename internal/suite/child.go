package suite

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/wherry-fabric/wherry/internal/child"
)

// childMark is the argument that makes the test binary a child of a suite.
const childMark = "suite-child"

// Parent is the side that started a child, and hears (Encode) and tells it things (Decode).
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

// Child plays a role: a process, or goroutines of this one (Play).
type Child interface {
	Tell(v any) error
	Hear(v any) error
	// Stop holds a child up, as SIGSTOP does a process, or lets it go on.
	Stop(on bool) error
	// Kill ends it as a crash would.
	Kill()
}

// Mortal is implemented by transports that reach no other process, the simulator's for one: what
// happens to a process happens to them alone.
type Mortal interface {
	Crash()
	Freeze(on bool)
}

// Spawn runs a role in a process of its own, which is killed at the end: the test binary is run
// again, for the same top-level test, which must call BeChild first of all.
func (r *Rig) Spawn(role string, args ...string) Child {
	r.Helper()
	if args := flag.Args(); len(args) > 0 && args[0] == childMark { // it would start one too, and so on
		r.Fatal("a child of a suite would start children: its test must call BeChild first of all")
	}
	top, _, _ := strings.Cut(r.Name(), "/")
	cmd := exec.Command("/proc/self/exe", append([]string{"-test.run=^" + top + "$", "-test.timeout=2m", "--", childMark, role}, args...)...)
	cmd.Stderr = os.Stderr
	p, err := child.Start(cmd)
	r.Must(err)
	r.AtEnd(p.Kill)
	return process{p}
}

type process struct{ *child.Process }

func (p process) Stop(on bool) error {
	if on {
		return p.Signal(syscall.SIGSTOP)
	}
	return p.Signal(syscall.SIGCONT)
}

// Play has a goroutine of this process play a role, for a transport that reaches no other. Before it is
// killed its transports crash, so that no peer hears how it ends; it is over when the role has returned.
func (r *Rig) Play(role Role, transports func() []Mortal, args ...string) Child {
	r.Helper()
	ears, in := io.Pipe()
	out, mouth := io.Pipe()
	p := &player{Encoder: json.NewEncoder(in), Decoder: json.NewDecoder(out), in: in, out: out, transports: transports, over: make(chan struct{})}
	go func() {
		defer close(p.over)
		err := role(&Parent{json.NewEncoder(mouth), json.NewDecoder(ears)}, args)
		mouth.CloseWithError(err)
		ears.CloseWithError(err)
	}()
	r.AtEnd(p.Kill)
	return p
}

// player is a child that is a goroutine.
type player struct {
	*json.Encoder
	*json.Decoder
	in         *io.PipeWriter
	out        *io.PipeReader
	transports func() []Mortal
	over       chan struct{}
}

func (p *player) Tell(v any) error { return p.Encode(v) }
func (p *player) Hear(v any) error { return p.Decode(v) }

func (p *player) Stop(on bool) error {
	for _, t := range p.transports() {
		t.Freeze(on)
	}
	return nil
}

func (p *player) Kill() {
	for _, t := range p.transports() {
		t.Crash()
	}
	p.in.Close()
	p.out.Close()
	<-p.over
}

// Heard is the next thing a child says.
func Heard[T any](r *Rig, p Child) (v T) {
	r.Helper()
	r.Must(p.Hear(&v))
	return v
}

// Kept is a factory of transports that keeps what it makes, for a player.
func Kept[T any](f func() (T, string, error)) (factory func() (T, string, error), list func() []Mortal) {
	var mu sync.Mutex
	var made []Mortal
	factory = func() (T, string, error) {
		t, listen, err := f()
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			made = append(made, any(t).(Mortal))
		}
		return t, listen, err
	}
	return factory, func() []Mortal {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(made)
	}
}
