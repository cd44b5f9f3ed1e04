// Package child runs programs as child processes that converse in JSON: what a child
// is told it reads from its standard input, what it answers it writes to its standard output. A child
// ends when its input does, so none outlives the process that started it, however that one ends.
//
//	p, err := child.Start(exec.Command(self, "role"))
//	...
//	defer p.End()
//	if err := p.Tell(spec); err != nil ...
//	if err := p.Hear(&answer); err != nil ...
//
// One goroutine at a time uses a Process; Signal may be called from any.
package child

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// endTime is how long a child may take to end once its input has; then it is killed.
const endTime = 5 * time.Second

// Process is a child.
type Process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr Text
}

// Start starts a command, whose standard input and output must be free. What it writes to its standard error is kept for
// the errors of Hear, unless the command sends it elsewhere.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd}
	if cmd.Stderr == nil {
		cmd.Stderr = &p.stderr
	}
	cmd.WaitDelay = time.Second // for a grandchild that keeps the standard error open
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.out = in, json.NewDecoder(out)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return p, nil
}

// Tell sends the child a value.
func (p *Process) Tell(v any) error { return json.NewEncoder(p.in).Encode(v) }

// Hear waits for the child's next value, as long as the child lives. If none comes it ends the child, and
// its error is what the child wrote to its standard error, or else how it ended.
func (p *Process) Hear(v any) error {
	err := p.out.Decode(v)
	if err == nil {
		return nil
	}
	p.End()
	if text := p.stderr.String(); text != "" {
		return errors.New(text)
	}
	return fmt.Errorf("it ended without an answer (%v): %w", p.cmd.ProcessState, err)
}

// Pid is the child's process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Signal sends the child a signal.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// EndInput ends what the child is told, so that it ends, and does not wait for that.
func (p *Process) EndInput() { p.in.Close() }

// End ends the child's input, waits until the child has ended, and kills it if it does not. It may be called again.
func (p *Process) End() {
	if p.cmd.ProcessState != nil {
		return
	}
	kill := time.AfterFunc(endTime, func() { p.cmd.Process.Kill() })
	defer kill.Stop()
	p.in.Close()
	_ = p.cmd.Wait() // what it had to say it has said
}

// Kill ends the child as a crash would.
func (p *Process) Kill() {
	p.cmd.Process.Kill() // first: a child whose input ends closes in good order
	p.End()
}
