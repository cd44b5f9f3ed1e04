package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// busySource computes for as many nanoseconds as its payload says, and answers.
const busySource = `#include "wherry.h"
WHERRY_ENTRY(payload, size)
{
    uint64_t until = wherry_now() + *(const uint64_t *)payload;
    while (wherry_now() < until)
        ;
    return wherry_reply("done", 4);
}
`

// stoppable is a node process, a client of it, and a function that takes a while.
type stoppable struct {
	cmd  *exec.Cmd
	errs *bytes.Buffer
	c    *client.Client
	f    *inject.Function
	ep   *fabric.Endpoint
}

// startStoppable starts a node with the given stop_time.
func startStoppable(t *testing.T, stopTime string) *stoppable {
	t.Helper()
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens")
	must(t, self(t.Context(), "", "token", "new", "cluster", "--node", "--file", tokens))
	config := filepath.Join(dir, "node.yaml")
	addr := "shm://" + filepath.Join(dir, "a.sock")
	if err := os.WriteFile(config, []byte("name: a\nlisten: ["+addr+"]\ntoken_file: "+tokens+"\nstop_time: "+stopTime+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &stoppable{cmd: exec.Command(os.Args[0], "node", "--config", config), errs: &bytes.Buffer{}}
	s.cmd.Env, s.cmd.Stderr = append(os.Environ(), "WHERRY_TEST_RUN=1"), s.errs
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			s.cmd.Process.Kill()
			s.cmd.Wait()
		}
	})
	m := cluster.Member{Name: "a", Addrs: []string{addr}}
	s.eventually(t, "the node does not answer", func() (err error) {
		s.c, err = client.Connect(t.Context(), client.Config{Nodes: []cluster.Member{m}, TokenFile: tokens, Only: true})
		return err
	})
	t.Cleanup(func() { s.c.Close() })
	img, err := cbuild.Build(t.Context(), cbuild.Source{Name: "busy.c", Code: []byte(busySource)},
		image.Manifest{Name: "busy", Limits: abi.Limits{RunTime: time.Minute}}, cbuild.Options{})
	if err == nil {
		s.f, err = s.c.Runtime().Prepare(img, nil)
	}
	if err == nil {
		s.ep, err = s.c.Endpoint(t.Context(), "a")
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stoppable) eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v\n%s", what, err, s.errs)
}

// start starts the function for a time, and waits until it runs.
func (s *stoppable) start(t *testing.T, d time.Duration) *inject.Future {
	t.Helper()
	fut, err := s.f.Start(t.Context(), []inject.Root{{To: s.ep, Payload: binary.LittleEndian.AppendUint64(nil, uint64(d))}}, inject.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.eventually(t, "the function does not run", s.state(t, func(st *control.Status) bool { return st.Queues.Running == 1 }))
	return fut
}

func (s *stoppable) state(t *testing.T, ok func(*control.Status) bool) func() error {
	return func() error {
		st, err := s.c.Status(t.Context(), "a")
		if err == nil && !ok(st) {
			err = errors.New("not yet")
		}
		return err
	}
}

// terminate tells the process to stop.
func (s *stoppable) terminate(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// signal tells the process to stop, and waits until it is about to: not for one that may be gone before it says so.
func (s *stoppable) signal(t *testing.T) {
	t.Helper()
	s.terminate(t)
	s.eventually(t, "the node does not begin to stop", s.state(t, func(st *control.Status) bool { return st.Stopping }))
}

// TestStopWaitsForFunctions covers: a node that is told to stop takes no new
// functions, and lets those that run end.
func TestStopWaitsForFunctions(t *testing.T) {
	s := startStoppable(t, "1m")
	fut := s.start(t, 5*time.Second) // far more than it takes to see that others are refused meanwhile
	s.signal(t)
	s.eventually(t, "it goes on taking functions", func() error {
		_, err := s.f.Do(t.Context(), inject.Root{To: s.ep, Payload: make([]byte, 8)}, nil)
		if errors.Is(err, travel.ErrStopping) && errors.Is(err, travel.ErrRefused) && exitCode(err) == exitLost {
			return nil
		}
		return errors.Join(errors.New("not refused"), err)
	})
	r, err := fut.Wait(t.Context())
	if err != nil || len(r.Pieces) != 1 || string(r.Pieces[0].Data) != "done" {
		t.Errorf("a function under way at the stop: %+v, %v", r, err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the node ended with %v\n%s", err, s.errs)
	}
	if strings.Contains(s.errs.String(), "cut off") {
		t.Errorf("something was cut off:\n%s", s.errs)
	}
}

// TestStopCancelsFunctions covers: functions that do not end within stop_time are
// stopped, and their callers hear why; a second signal ends a node at once.
func TestStopCancelsFunctions(t *testing.T) {
	s := startStoppable(t, "300ms")
	fut := s.start(t, 50*time.Second)
	s.terminate(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := fut.Wait(ctx); !errors.Is(err, travel.ErrStopping) || !strings.Contains(err.Error(), "300ms") {
		t.Errorf("a function that takes too long: %v", err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the node ended with %v\n%s", err, s.errs)
	}

	s = startStoppable(t, "5m")
	s.start(t, 50*time.Second)
	s.signal(t)
	s.cmd.Process.Signal(syscall.SIGTERM)
	s.cmd.Wait()
	if ws := s.cmd.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != syscall.SIGTERM {
		t.Errorf("after a second signal: %v\n%s", s.cmd.ProcessState, s.errs)
	}
}
