package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/wherry-fabric/wherry/internal/child"
)

const (
	// processesTurns is how often one client process and all of them take turns, and processesTurn how long each measures: on
	// one CPU each of 16 processes is on it some twenty times.
	processesTurns = 5
	processesTurn  = time.Second
	// processesWarm is how long each process calls before it says that it is ready.
	processesWarm = 50 * time.Millisecond
	// processesLead is the time from the word to begin to the beginning, for each process: all have heard it by then.
	processesLead = 10 * time.Millisecond
)

// window is when the client processes of a turn call: all in the same time.
type window struct{ Begin, End time.Time }

// inStep is one of several client processes: it calls in the time that it is told, and says how often.
func (c *client) inStep() error {
	all := c.newCallers()
	if _, _, err := c.together(all, newCallTurn(processesWarm, 0)); err != nil {
		return err
	}
	all[0].times = all[0].times[:0]
	if err := c.w.Encode(note{Ready: true}); err != nil {
		return err
	}
	var when window
	if err := c.in.Decode(&when); err != nil {
		return fmt.Errorf("bench: nobody says when to begin: %w", err)
	}
	time.Sleep(time.Until(when.Begin))
	calls, _, err := c.together(all, newCallTurn(time.Until(when.End), 0))
	if err != nil {
		return err
	}
	c.r.Set("calls", calls)
	c.r.Set("rtt_ns_p50", all[0].times.p(0.5))
	c.r.Set("rtt_ns_p99", all[0].times.p(0.99))
	return nil
}

// turnOf is what one turn of some client processes gave.
type turnOf struct {
	calls     int
	perSecond float64
	least     float64 // calls of the process with fewest, over those of the one with most
	p50, p99  samples // one for each process
	clock     samples
}

// processes measures one client process and all of them in turns, each turn with fresh processes: a client that
// only waits for its turn would have a part of the CPU too.
func (c *Config) processes(ctx context.Context, spec role, dir string) (*Result, error) {
	var one, all, ratio, least, p50, p99, clock samples
	calls := 0
	for turn := range processesTurns {
		var rate float64
		for _, n := range []int{1, c.Processes} {
			if c.Progress != nil {
				c.Progress(fmt.Sprintf("client processes: %d", n), (float64(turn)+float64(min(n-1, 1))/2)/processesTurns)
			}
			t, err := c.processTurn(ctx, spec, filepath.Join(dir, strconv.Itoa(turn)+"-"+strconv.Itoa(n)), n)
			if err != nil {
				return nil, err
			}
			clock = append(clock, t.clock...)
			if n == 1 {
				rate = t.perSecond
				one = append(one, rate)
				continue
			}
			calls += t.calls
			all, ratio, least = append(all, t.perSecond), append(ratio, t.perSecond/rate), append(least, t.least)
			p50, p99 = append(p50, t.p50...), append(p99, t.p99...)
		}
	}
	r := &Result{}
	hostInfo(r, c)
	r.Set("clock_ns", clock.p(0.5))
	r.Set("processes", c.Processes)
	r.Set("handler", spec.handler())
	r.Set("calls_per_s", all.p(0.5))
	r.Set("one_process_calls_per_s", one.p(0.5))
	r.Set("over_one", ratio.p(0.5))
	r.Set("least_over_most", least.p(0.5))
	r.Set("least_over_most_min", least.p(0))
	r.Set("rtt_ns_p50", p50.p(0.5))
	r.Set("rtt_ns_p99", p99.p(0.5))
	r.Set("payload_bytes", c.Bytes)
	r.Set("calls", calls)
	return r, r.Err()
}

// processTurn takes one turn: a server, n clients, and the end of all.
func (c *Config) processTurn(ctx context.Context, spec role, dir string, n int) (t turnOf, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return t, fmt.Errorf("bench: %w", err)
	}
	spec.InStep = true
	crew, err := c.muster(ctx, spec, dir, n)
	if err != nil {
		return t, err
	}
	defer crew.end()
	for _, p := range crew.clients {
		if _, err := hearNote(p); err != nil {
			return t, err
		}
	}
	length := processesTurn
	if c.Turn != 0 {
		length = c.Turn
	}
	when := window{Begin: time.Now().Add(time.Duration(n) * processesLead)}
	when.End = when.Begin.Add(length)
	for _, p := range crew.clients {
		_ = p.Tell(when) // if it fails the process has ended, and hear says why
	}
	var each samples
	for _, p := range crew.clients {
		said, err := hearNote(p)
		if err != nil {
			return t, err
		}
		if said.Result == nil {
			return t, fmt.Errorf("bench: a client process ended its turn without a result")
		}
		f := said.Result.float
		t.calls += int(f("calls"))
		each, t.clock = append(each, f("calls")), append(t.clock, f("clock_ns"))
		t.p50, t.p99 = append(t.p50, f("rtt_ns_p50")), append(t.p99, f("rtt_ns_p99"))
	}
	t.perSecond = float64(t.calls) / length.Seconds()
	t.least = each.p(0) / max(each.p(1), 1)
	return t, nil
}

// hearNote hears a client's next word, and its error if it says one.
func hearNote(p *child.Process) (n note, err error) {
	if err := hear(p, &n); err != nil {
		return n, err
	}
	if n.Error != "" {
		return n, fmt.Errorf("bench: %s", n.Error)
	}
	return n, nil
}

// float is a field's figure, 0 if it has none.
func (r *Result) float(name string) float64 {
	n, _ := r.Get(name).(json.Number)
	f, _ := n.Float64()
	return f
}
