package turn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/bench/peers/echo"
	"github.com/wherry-fabric/wherry/bench/peers/figures"
)

// TestMain doubles as a turn's processes.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "role" {
		if err := Role(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.init.0.func1"))
}

func runner(t *testing.T) *Runner {
	t.Helper()
	cpus, err := Pinned(true)
	if err != nil {
		t.Fatal(err)
	}
	return &Runner{Command: []string{os.Args[0], "role"}, CPUs: cpus, Time: 2 * time.Millisecond}
}

func TestTake(t *testing.T) {
	for _, work := range figures.Works() {
		for _, name := range []string{figures.VerbsPeer, figures.RPCPeer, "net/rpc"} {
			peer, err := echo.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			if !peer.Offers(work) {
				continue
			}
			s, err := runner(t).Take(t.Context(), peer, "tcp", work)
			if err != nil {
				t.Fatalf("%s %s: %v", name, work, err)
			}
			bulk := work == figures.Get || work == figures.Put
			if s.Calls < leastCalls || s.CallsPerS <= 0 || s.MeanNs <= 0 || s.ClientProcs != 1 || s.ServerProcs != 1 || s.WallS <= 0 || bulk != (s.GBytesPerS > 0) {
				t.Errorf("%s %s: %+v", name, work, s)
			}
			if several := work.Clients() > 1; several != (s.LeastOverMost > 0) || s.LeastOverMost > 1 {
				t.Errorf("%s %s: the client with fewest calls has %v of the one with most", name, work, s.LeastOverMost)
			}
			if (work == figures.Echo || work.Ordinary()) && (s.P50Ns <= 0 || s.P99Ns < s.P50Ns) {
				t.Errorf("%s %s: percentiles of %+v", name, work, s)
			}
		}
	}
}

// TestLoops: they run until they are ended, and turns are taken beside them.
func TestLoops(t *testing.T) {
	r := runner(t)
	l, err := r.StartLoops(t.Context())
	if err != nil || len(l) != 2 {
		t.Fatalf("%d loops, %v", len(l), err)
	}
	defer l.End()
	peer, err := echo.Find("net/rpc")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := r.Take(t.Context(), peer, "tcp", figures.Echo); err != nil || s.Calls < leastCalls {
		t.Errorf("%+v, %v", s, err)
	}
	for _, p := range l {
		busy := func() (ticks int) {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
			if err != nil {
				t.Fatal(err)
			}
			_, rest, _ := strings.Cut(string(text), ") ")
			ticks, err = strconv.Atoi(strings.Fields(rest)[11]) // utime
			if err != nil {
				t.Fatal(err)
			}
			return ticks
		}
		for before, end := busy(), time.Now().Add(20*time.Second); busy() == before; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("process %d uses no processor", p.Pid())
			}
		}
	}
}

func TestTakeFails(t *testing.T) {
	peer, err := echo.Find("net/rpc")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		command []string
		peer    echo.Peer
		says    string
	}{
		"a program that is not there": {[]string{"/no/such/program"}, peer, "no such file"},
		"one that ends":               {[]string{"/bin/sh", "-c", "exit 3"}, peer, "exit status 3"},
		"one that complains":          {[]string{"/bin/sh", "-c", "echo ouch >&2"}, peer, "ouch"},
		"one that talks nonsense":     {[]string{"/bin/sh", "-c", "echo nonsense"}, peer, "without an answer"},
		"a peer that does not exist":  {[]string{os.Args[0], "role"}, echo.Peer{Name: "nobody"}, `no peer "nobody"`},
	} {
		r := runner(t)
		r.Command = c.command
		if _, err := r.Take(t.Context(), c.peer, "tcp", figures.Echo); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want something with %q", name, err, c.says)
		}
	}
}

func TestTakeEnds(t *testing.T) {
	r := runner(t)
	r.Command = []string{"/bin/sh", "-c", "exec sleep 60"}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := r.Take(ctx, echo.All()[0], "tcp", figures.Echo); err == nil || time.Since(began) > 20*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}

func TestRoleWithoutOne(t *testing.T) {
	if err := Role(t.Context(), strings.NewReader(""), &strings.Builder{}); err == nil || !strings.Contains(err.Error(), "no role") {
		t.Errorf("without a specification: %v", err)
	}
}

func TestPinned(t *testing.T) {
	cpus, err := Pinned(true)
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range []bool{false, true} {
		var out strings.Builder
		cmd := exec.Command("/bin/sh", "-c", "grep Cpus_allowed_list /proc/self/status")
		cmd.Stdout = &out
		if err := cpus.On(server, cmd.Start); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		want := cpus.Client
		if server {
			want = cpus.Server
		}
		if f := strings.Fields(out.String()); len(f) != 2 || f[1] != fmt.Sprint(want) {
			t.Errorf("a process of the server=%v side may use %q, not CPU %d", server, out.String(), want)
		}
	}
	if free, err := Pinned(false); err != nil || free.String() != "none" {
		t.Errorf("without pinning: %v, %v", free, err)
	}
}

// failing answers twice, then no more.
type failing struct{ left int }

var errFailing = errors.New("as asked")

func (f *failing) Echo(req, _ []byte) ([]byte, error) {
	if f.left--; f.left < 0 {
		return nil, errFailing
	}
	return req, nil
}
func (f *failing) Get([]byte) ([]byte, error) { return []byte("short"), nil }
func (f *failing) Put([]byte) error           { return errFailing }
func (f *failing) Close() error               { return nil }

func TestMeterFails(t *testing.T) {
	for work, want := range map[figures.Work]error{figures.Echo: errFailing, figures.Get: echo.ErrWrongAnswer, figures.Put: errFailing} {
		if _, err := newMeter(&failing{2}, work).run(time.Second); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", work, err, want)
		}
	}
}

func TestWithin(t *testing.T) {
	more := within(time.Now().Add(-time.Hour), time.Minute)
	for asked := 1; asked < 10*timeEvery; asked++ {
		if more() != (asked < timeEvery) {
			t.Fatalf("asked %d times, an hour after the beginning of a minute: %v", asked, asked >= timeEvery)
		}
	}
	more = within(time.Now(), time.Hour)
	for range 10 * timeEvery {
		if !more() {
			t.Fatal("an hour is over at once")
		}
	}
}
