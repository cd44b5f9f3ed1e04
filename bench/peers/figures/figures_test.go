package figures

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want float64
	}{
		{[]float64{3}, 3},
		{[]float64{5, 1, 3}, 3},
		{[]float64{4, 1, 3, 2}, 2.5},
		{[]float64{1, 1, 1, 1000}, 1},
	} {
		before := slices.Clone(c.v)
		if got := Median(c.v); got != c.want {
			t.Errorf("Median(%v) = %v, want %v", c.v, got, c.want)
		}
		if !slices.Equal(before, c.v) {
			t.Errorf("Median changed its argument from %v to %v", before, c.v)
		}
	}
	if !math.IsNaN(Median(nil)) {
		t.Errorf("Median of nothing is %v", Median(nil))
	}
}

func TestQuantile(t *testing.T) {
	hundred := make([]uint32, 100)
	for i := range hundred {
		hundred[i] = uint32(i + 1)
	}
	for _, c := range []struct {
		v    []uint32
		q    float64
		want float64
	}{
		{hundred, 0.5, 50}, {hundred, 0.99, 99}, {hundred, 1, 100}, {hundred, 0, 1},
		{[]uint32{7}, 0.5, 7}, {[]uint32{1, 9}, 0.5, 1}, {nil, 0.5, 0},
	} {
		if got := Quantile(c.v, c.q); got != c.want {
			t.Errorf("Quantile of %d at %v = %v, want %v", len(c.v), c.q, got, c.want)
		}
	}
}

// sampleTable has a row of every kind.
func sampleTable() *Table {
	t := &Table{TurnMs: 300, Machine: Machine{CPU: "A <CPU> & more", Cores: 2, OS: "linux/amd64", Kernel: "6.1", Go: "go1.26", Time: "2026-01-02T03:04:05Z"}}
	row := func(peer, transport, class string, w Work, samples ...Sample) *Row {
		r := &Row{Peer: peer, Version: "v1", Work: w, Transport: transport, Class: class, Policy: "latency", Pinning: "client cpu 0, server cpu 1"}
		for i, s := range samples {
			r.Add(i, s)
		}
		t.Rows = append(t.Rows, r)
		return r
	}
	row(VerbsPeer, "shm", "shm", Echo, Sample{P50Ns: 400, P99Ns: 900, MeanNs: 420, CallsPerS: 2e6, Calls: 10, WallS: 1, ClientProcs: 1, ServerProcs: 1},
		Sample{P50Ns: 800, P99Ns: 1800, MeanNs: 840, CallsPerS: 1e6, Calls: 10, WallS: 1, ClientProcs: 1, ServerProcs: 1})
	row(RPCPeer, "shm", "shm", Echo, Sample{P50Ns: 800, Calls: 5})
	row("grpc", "unix", "shm", Echo, Sample{P50Ns: 40_000, P99Ns: 90_000, Calls: 5, AllocsPerOp: 80}, Sample{P50Ns: 160_000, Calls: 5, AllocsPerOp: 82})
	row("ucx", "posix", "shm", Echo, Sample{P50Ns: 440, Calls: 5, AllocsPerOp: -1})
	row(VerbsPeer, "shm", "shm", Get, Sample{GBytesPerS: 40, Calls: 5})
	row("ucx", "posix", "shm", Get, Sample{GBytesPerS: 10, Calls: 5, AllocsPerOp: -1})
	gone := row("ucx", "tcp", "tcp", Echo)
	gone.Status, gone.Reason, gone.Install = NotInstalled, "ucx_perftest is not in the PATH", "install it: apt-get install x"
	row("nats", "tcp", "tcp", Echo64).Fail(errors.New("the broker <was> not & ready\nsecond line"))
	return t
}

func (t *Table) find(peer, transport string, w Work) *Row {
	for _, r := range t.Rows {
		if r.Peer == peer && r.Transport == transport && r.Work == w {
			return r
		}
	}
	return nil
}

func TestTimes(t *testing.T) {
	tab := sampleTable()
	for _, c := range []struct {
		peer, transport string
		work            Work
		base            string
		want            float64 // NaN: none
	}{
		{"grpc", "unix", Echo, VerbsPeer, 150},           // 100 in one round, 200 in the other
		{"grpc", "unix", Echo, RPCPeer, 50},              // one round has both
		{"ucx", "posix", Echo, VerbsPeer, 1.1},           // less is better
		{"ucx", "posix", Get, VerbsPeer, 4},              // more is better
		{VerbsPeer, "shm", Echo, VerbsPeer, 1},           // itself
		{"ucx", "posix", Get, RPCPeer, math.NaN()},       // not measured
		{"nats", "tcp", Echo64, VerbsPeer, math.NaN()},   // nor this
		{"ucx", "tcp", Echo, VerbsPeer, math.NaN()},      // another class
		{RPCPeer, "shm", Echo, VerbsPeer, 2},             // only the first round counts
		{"ucx", "posix", Echo, "somebody", math.NaN()},   // no such row
		{VerbsPeer, "shm", Get, VerbsPeer, 1},            // bulk
		{"grpc", "unix", Echo, "grpc", 1},                // its class is another's transport
		{"ucx", "posix", Echo, RPCPeer, 440.0 / 800.0},   // faster than wherry
		{VerbsPeer, "shm", Echo, RPCPeer, 400.0 / 800.0}, // likewise
	} {
		r := tab.find(c.peer, c.transport, c.work)
		got := r.Times(tab.base(r, c.base))
		if math.Abs(got-c.want) > 1e-9 || math.IsNaN(got) != math.IsNaN(c.want) {
			t.Errorf("%s %s against %s: %v, want %v", r.Label(), c.work, c.base, got, c.want)
		}
	}
}

func TestFailures(t *testing.T) {
	r := &Row{Work: Echo}
	r.Fail(io.ErrUnexpectedEOF)
	if r.Status != Failed || r.Errors != 1 {
		t.Errorf("after a failure the row is %+v", r)
	}
	r.Add(1, Sample{P50Ns: 1000})
	r.Fail(io.ErrUnexpectedEOF)
	if r.Status != Measured || r.Errors != 2 || r.Rounds() != 1 {
		t.Errorf("with one sample and two failures the row is %+v", r)
	}
	if m, lo, hi := r.Figure(); m != 1 || lo != 1 || hi != 1 {
		t.Errorf("figure %v (%v – %v), want 1", m, lo, hi)
	}
}

func TestJSON(t *testing.T) {
	tab := sampleTable()
	var out strings.Builder
	if err := tab.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(tab.Rows) {
		t.Fatalf("%d lines for %d rows", len(lines), len(tab.Rows))
	}
	for i, l := range lines {
		var o map[string]any
		if err := json.Unmarshal([]byte(l), &o); err != nil {
			t.Fatalf("%v in %s", err, l)
		}
		for _, name := range []string{"benchmark", "peer", "work", "transport", "policy", "pinning", "status", "wall_s", "turn_ms", "cores"} {
			if _, ok := o[name]; !ok {
				t.Errorf("row %d has no %s: %s", i, name, l)
			}
		}
		for name, v := range o {
			switch v.(type) {
			case map[string]any, []any:
				t.Errorf("%s is not flat: %v", name, v)
			}
		}
	}
	for i, want := range map[int]string{
		0: `"rtt_ns_p50":600,"rtt_ns_p50_least":400,"rtt_ns_p50_most":800`,
		2: `"times_wherry_verbs":150,"times_wherry_rpc":50,`,
		6: `"status":"not installed","reason":"ucx_perftest is not in the PATH","install":"install it: apt-get install x"`,
		7: `"status":"failed"`,
	} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("row %d: no %s in %s", i, want, lines[i])
		}
	}
	if strings.Contains(lines[3], "allocs_per_op") {
		t.Errorf("allocations that nobody knows: %s", lines[3])
	}
}

func TestText(t *testing.T) {
	tab := sampleTable()
	var table, bars strings.Builder
	if err := errors.Join(tab.WriteTable(&table), tab.WriteBars(&bars)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"not installed: ucx_perftest is not in the PATH; install it: apt-get install x", "failed: the broker <was> not & ready\n",
		"latency", "client cpu 0, server cpu 1", "0.60", "0.40 – 0.80", "GOMAXPROCS of the Go programs: client 1, server 1"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, table.String())
		}
	}
	for _, want := range []string{"wherry verbs shm", "ucx tcp                │ not installed", "│█"} {
		if !strings.Contains(bars.String(), want) {
			t.Errorf("the plot has no %q:\n%s", want, bars.String())
		}
	}
}

func TestRounding(t *testing.T) {
	for _, c := range []struct {
		v    float64
		json float64
		text string
	}{{123456.7, 123457, "123457"}, {45.678, 45.7, "45.7"}, {1.23456, 1.235, "1.23"}, {0.012345, 0.0123, "0.01"}, {0.00012345, 0.000123, "0.00012"}, {0, 0, "0.00"}} {
		if got := known(c.v); got == nil || math.Abs(*got-c.json) > 1e-12 {
			t.Errorf("%v in JSON is %v, want %v", c.v, *got, c.json)
		}
		if got := short(c.v); got != c.text {
			t.Errorf("%v for people is %s, want %s", c.v, got, c.text)
		}
	}
	if known(math.NaN()) != nil || known(math.Inf(1)) != nil || short(math.NaN()) != "–" {
		t.Error("what is not known has a figure")
	}
}

func TestBar(t *testing.T) {
	for cells, want := range map[float64]string{0: "▏", 0.5: "▌", 1: "█", 2.25: "██▎", 3.99: "████"} {
		if got := bar(cells); got != want {
			t.Errorf("bar(%v) = %q, want %q", cells, got, want)
		}
	}
}

func TestLogScale(t *testing.T) {
	row := func(us float64) *Row {
		r := &Row{Work: Echo}
		r.Add(0, Sample{P50Ns: us * 1e3})
		return r
	}
	s := newLogScale([]*Row{row(0.5), row(50)})
	for v, want := range map[float64]float64{0.1: 0, 100: 1, 1: 1.0 / 3, 10: 2.0 / 3, 0.001: 0, 1e9: 1} {
		if got := s.at(v); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v lies at %v, want %v", v, got, want)
		}
	}
	if s := newLogScale([]*Row{row(10)}); s.at(10) < 0 || s.at(10) > 1 || s.high <= s.low {
		t.Errorf("a scale for one power of ten: %+v", s)
	}
	if newLogScale([]*Row{{Work: Echo}}) != nil {
		t.Error("a scale for rows without figures")
	}
}

// TestSVG reads the picture as XML and looks for what it must show, and for what
// would make it depend on something else.
func TestSVG(t *testing.T) {
	tab := sampleTable()
	var out strings.Builder
	if err := tab.WriteSVG(&out); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(strings.NewReader(out.String()))
	count := map[string]int{}
	var text strings.Builder
	for {
		tok, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, out.String())
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			count[tok.Name.Local]++
			for _, a := range tok.Attr {
				if a.Name.Local == "href" || strings.Contains(a.Value, "url(") || strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("<%s %s=%q>", tok.Name.Local, a.Name.Local, a.Value)
				}
			}
		case xml.CharData:
			text.Write(tok)
			text.WriteByte('\n')
		}
	}
	if count["svg"] != 1 || count["script"] != 0 || count["image"] != 0 || count["rect"] != 1+6 { // the ground, and a bar per row with a figure
		t.Errorf("elements: %v", count)
	}
	for _, want := range []string{"A <CPU> & more", "ucx tcp", "not installed", "failed", "wherry verbs shm", "40.0", "client cpu 0, server cpu 1", "100 (50.0× wherry rpc)", "10.0 (4.00× wherry verbs)"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the picture does not say %q:\n%s", want, text.String())
		}
	}
	if strings.Contains(out.String(), "@import") {
		t.Error("the picture loads something")
	}
}

func TestEmpty(t *testing.T) {
	tab := &Table{Machine: ThisMachine()}
	if err := errors.Join(tab.WriteTable(io.Discard), tab.WriteBars(io.Discard), tab.WriteSVG(io.Discard), tab.WriteJSON(io.Discard)); err != nil {
		t.Fatal(err)
	}
	if m := ThisMachine(); m.Cores < 1 || m.Time == "" || m.String() == "" {
		t.Errorf("this machine is %+v", m)
	}
}
