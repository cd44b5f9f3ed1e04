package figures

import (
	"fmt"
	"math"
	"slices"
)

// Sample is what one turn of one row gave. Times are those of one operation.
type Sample struct {
	P50Ns, P99Ns, MeanNs float64 // 0: the peer's tool does not say
	CallsPerS            float64
	GBytesPerS           float64 // of payload; bulk only
	Calls                int     // measured
	AllocsPerOp          float64 // the worse process; negative: not known
	ClientProcs          int     // GOMAXPROCS; 0: not a Go program
	ServerProcs          int
	WallS                float64 // of the whole turn, starting processes included
	LeastOverMost        float64 // calls of the client process with fewest over those of the one with most; 0: there is one
}

// Together is what clients gave that worked at the same time: their rates' sum, and medians of their times.
func Together(all []Sample) Sample {
	if len(all) == 1 {
		return all[0]
	}
	var s Sample
	var p50, p99, mean, calls []float64
	for _, one := range all {
		p50, p99, mean, calls = append(p50, one.P50Ns), append(p99, one.P99Ns), append(mean, one.MeanNs), append(calls, float64(one.Calls))
		s.CallsPerS += one.CallsPerS
		s.GBytesPerS += one.GBytesPerS
		s.Calls += one.Calls
		s.AllocsPerOp = max(s.AllocsPerOp, one.AllocsPerOp)
	}
	s.P50Ns, s.P99Ns, s.MeanNs = Median(p50), Median(p99), Median(mean)
	s.LeastOverMost = slices.Min(calls) / max(slices.Max(calls), 1)
	return s
}

// Status says what became of a row.
type Status string

const (
	Measured     Status = "measured"
	NotInstalled Status = "not installed"
	NotOffered   Status = "not offered" // the peer has no such operation
	Failed       Status = "failed"
)

// Row is one peer doing one work.
type Row struct {
	Peer      string // "grpc"
	Version   string
	Work      Work
	Transport string // as the peer has it: "shm", "posix", "unix", "tcp"
	Class     string // which of wherry's transports it is compared with: "shm" or "tcp"
	Policy    string // how both sides wait
	Pinning   string
	Status    Status
	Reason    string // why it was not measured
	Install   string // what to do about it
	Errors    int    // turns that failed

	byRound map[int]Sample
}

// Label names the row's peer and transport.
func (r *Row) Label() string { return r.Peer + " " + r.Transport }

// Add keeps a round's sample.
func (r *Row) Add(round int, s Sample) {
	if r.byRound == nil {
		r.byRound = map[int]Sample{}
	}
	r.byRound[round] = s
	r.Status = Measured
}

// Fail keeps the reason of a turn that failed. A row that has a sample from another round stays measured.
func (r *Row) Fail(err error) {
	r.Errors++
	r.Reason = err.Error()
	if len(r.byRound) == 0 {
		r.Status = Failed
	}
}

// Rounds is how many samples there are.
func (r *Row) Rounds() int { return len(r.byRound) }

// each collects one quantity over the rounds, those without it (0 or less) left out.
func (r *Row) each(of func(Sample) float64) []float64 {
	var v []float64
	for _, s := range r.byRound {
		if x := of(s); x > 0 {
			v = append(v, x)
		}
	}
	return v
}

// median is a quantity's median over rounds; NaN if there is none.
func (r *Row) median(of func(Sample) float64) float64 { return Median(r.each(of)) }

// figure is the quantity that the row's work is judged by.
func (r *Row) figure(s Sample) float64 {
	switch {
	case r.Work.lessIsBetter():
		return s.P50Ns / 1e3
	case r.Work == Get || r.Work == Put:
		return s.GBytesPerS
	}
	return s.CallsPerS / 1e3
}

// Figure is the row's median figure in the unit of its work's title, with the
// least and greatest round; NaN if it was not measured.
func (r *Row) Figure() (median, least, most float64) {
	v := r.each(r.figure)
	least, most = spread(v)
	return Median(v), least, most
}

// Times is how many times as long as base the row takes for its work: the
// median of the ratios within each round. Above 1 base is faster. NaN if no
// round has both.
func (r *Row) Times(base *Row) float64 {
	if base == nil || base.Work != r.Work {
		return math.NaN()
	}
	var v []float64
	for round, s := range r.byRound {
		b, ok := base.byRound[round]
		if mine, its := r.figure(s), r.figure(b); ok && mine > 0 && its > 0 {
			if r.Work.lessIsBetter() {
				v = append(v, mine/its)
			} else {
				v = append(v, its/mine)
			}
		}
	}
	return Median(v)
}

// Names of wherry's own rows, which the others are compared with.
const (
	VerbsPeer  = "wherry verbs"
	RPCPeer    = "wherry rpc"        // blocking handlers, as a program has them
	InlinePeer = "wherry rpc inline" // handlers on the goroutine that drives the server's fabric
)

// NetRPCPeer is what every row's ratio to Go's own calls refers to.
const NetRPCPeer = "net/rpc"

// Table is a whole run.
type Table struct {
	Rows    []*Row
	Machine Machine
	TurnMs  float64
	// BusyLoops are the processes that kept the CPUs busy beside.
	BusyLoops int
}

// base is the row of that peer's that r is compared with: the same work, on the same kind of transport. Where the peer has several, with
// a policy each, it is that with r's, or the first. Nil if there is none.
func (t *Table) base(r *Row, peer string) (base *Row) {
	for _, b := range t.Rows {
		if b.Peer != peer || b.Work != r.Work || b.Class != r.Class {
			continue
		}
		if b.Policy == r.Policy {
			return b
		}
		if base == nil {
			base = b
		}
	}
	return base
}

// overNetRPC is how many times as fast as net/rpc the row is: above 1 the row is faster. NaN if one of them was not measured.
func (t *Table) overNetRPC(r *Row) float64 { return 1 / r.Times(t.base(r, NetRPCPeer)) }

// of are the rows of one work, in order.
func (t *Table) of(w Work) []*Row {
	var rows []*Row
	for _, r := range t.Rows {
		if r.Work == w {
			rows = append(rows, r)
		}
	}
	return rows
}

// short writes a figure with what a measurement can mean.
func short(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 10:
		return fmt.Sprintf("%.1f", v)
	case v != 0 && math.Abs(v) < 0.01:
		return fmt.Sprintf("%.2g", v)
	}
	return fmt.Sprintf("%.2f", v)
}
