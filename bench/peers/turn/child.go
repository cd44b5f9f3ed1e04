package turn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// endTime is how long a process may take to end by itself.
const endTime = 3 * time.Second

// maxErrorBytes bounds what is kept of a process's standard error.
const maxErrorBytes = 16 << 10

// Tail keeps the first bytes written to it, up to a bound, and drops the rest.
type Tail struct{ b bytes.Buffer }

func (t *Tail) Write(p []byte) (int, error) {
	t.b.Write(p[:min(len(p), maxErrorBytes-t.b.Len())])
	return len(p), nil
}

// String is what was kept, without space around it.
func (t *Tail) String() string { return strings.TrimSpace(t.b.String()) }

// child is a process in a role.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr Tail
}

// start starts this program in a role.
func (r *Runner) start(ctx context.Context, s spec) (*child, error) {
	p := &child{cmd: exec.CommandContext(ctx, r.Command[0], r.Command[1:]...)}
	p.cmd.Stderr = &p.stderr
	p.cmd.WaitDelay = time.Second
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = json.NewDecoder(out)
	if err := r.CPUs.Start(p.cmd, s.Server); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(p.in).Encode(s); err != nil {
		p.end()
		return nil, p.failed(err)
	}
	return p, nil
}

// ask says a word to the process and hears its answer. An empty word only hears.
func (p *child) ask(word string) (a answer, err error) {
	if word != "" {
		if err := json.NewEncoder(p.in).Encode(word); err != nil {
			return a, p.failed(err)
		}
	}
	if err := p.out.Decode(&a); err != nil {
		return a, p.failed(err)
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// failed ends the process and says why it is of no use.
func (p *child) failed(err error) error {
	p.end()
	if text := p.stderr.String(); text != "" {
		return fmt.Errorf("a process of the turn failed: %s", text)
	}
	return fmt.Errorf("a process of the turn ended without an answer (%v): %w", p.cmd.ProcessState, err)
}

// end lets the process end, kills it if it does not, and waits. It may be called twice.
func (p *child) end() {
	if p.cmd.ProcessState != nil {
		return
	}
	p.in.Close()
	kill := time.AfterFunc(endTime, func() { p.cmd.Process.Kill() })
	defer kill.Stop()
	_ = p.cmd.Wait() // what it had to say it has said
}
