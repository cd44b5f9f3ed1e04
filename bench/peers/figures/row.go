package figures

import (
	"fmt"
	"math"
)

// Work is what a peer is asked to do.
type Work string

const (
	// Echo is 8 bytes there and back, one at a time.
	Echo Work = "echo"
	// Echo64 is the same with 64 under way at any time.
	Echo64 Work = "echo64"
	// Get brings 1 MiB from the server into the client's buffer, one at a time.
	Get Work = "get1m"
	// Put brings 1 MiB from the client's buffer to the server, one at a time.
	Put Work = "put1m"
)

// Works are all of them, in the order they are shown.
func Works() []Work { return []Work{Echo, Echo64, Get, Put} }

const (
	// EchoBytes is the payload of an echo.
	EchoBytes = 8
	// Depth is how many calls Echo64 keeps under way.
	Depth = 64
	// BulkBytes is the payload of Get and Put.
	BulkBytes = 1 << 20
)

// Title describes a work to people, with the unit of its figure.
func (w Work) Title() string {
	switch w {
	case Echo:
		return "8-byte echo, one in flight: round trip, µs (less is better)"
	case Echo64:
		return "8-byte echo, 64 in flight: thousand calls/s (more is better)"
	case Get:
		return "1 MiB from the server, one in flight: GB/s (more is better)"
	case Put:
		return "1 MiB to the server, one in flight: GB/s (more is better)"
	}
	return string(w)
}

// lessIsBetter reports whether the work's figure is a time.
func (w Work) lessIsBetter() bool { return w == Echo }

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
	switch r.Work {
	case Echo:
		return s.P50Ns / 1e3
	case Echo64:
		return s.CallsPerS / 1e3
	}
	return s.GBytesPerS
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
	VerbsPeer = "wherry verbs"
	RPCPeer   = "wherry rpc"
)

// Table is a whole run.
type Table struct {
	Rows    []*Row
	Machine Machine
	TurnMs  float64
}

// base is the row of wherry's that r is compared with; nil if there is none.
func (t *Table) base(r *Row, peer string) *Row {
	for _, b := range t.Rows {
		if b.Peer == peer && b.Work == r.Work && b.Transport == r.Class {
			return b
		}
	}
	return nil
}

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
