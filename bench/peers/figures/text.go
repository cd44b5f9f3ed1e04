package figures

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// WriteTable writes the run as a table per work.
func (t *Table) WriteTable(w io.Writer) error {
	out := &strings.Builder{}
	fmt.Fprintln(out, t.Machine)
	if t.BusyLoops > 0 {
		fmt.Fprintf(out, "Beside a busy loop on each CPU: %d processes.\n", t.BusyLoops)
	}
	for _, work := range Works() {
		rows := t.of(work)
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(out, "\n%s\n", work.Title())
		tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "peer\ttransport\tmedian\tleast – most\tp99 µs\tallocs\t× verbs\t× rpc\tover net/rpc\tleast/most\trounds\twall s\tpolicy\tpinning")
		for _, r := range rows {
			t.line(tw, r)
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "\n× verbs, × rpc: how many times as long as wherry's verbs (Send, Get, Put) or calls take on the same kind of transport,\n"+
		"median of the ratios within each round; above 1 wherry is faster. over net/rpc: how many times as fast as net/rpc, by the same rule.\n"+
		"least/most: calls of the client process with fewest over those of the one with most. allocs: per operation, of the worse process.\n"+
		"%sTurns of %s ms, each with fresh processes.\n", t.procs(), short(t.TurnMs))
	_, err := io.WriteString(w, out.String())
	return err
}

// procs says what GOMAXPROCS the Go programs had.
func (t *Table) procs() string {
	for _, r := range t.Rows {
		for _, s := range r.byRound {
			if s.ClientProcs > 0 {
				return fmt.Sprintf("GOMAXPROCS of the Go programs: client %d, server %d, which Go's runtime chose by the CPUs it may use.\n", s.ClientProcs, s.ServerProcs)
			}
		}
	}
	return ""
}

func (t *Table) line(w io.Writer, r *Row) {
	if r.Status != Measured {
		text := string(r.Status) + ": " + firstLine(r.Reason)
		if r.Install != "" {
			text += "; " + r.Install
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", r.Peer, r.Transport, text)
		return
	}
	o := t.object(r)
	median, least, most := r.Figure()
	rounds := fmt.Sprint(r.Rounds())
	if r.Errors > 0 {
		rounds += fmt.Sprintf(" (%d failed)", r.Errors)
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s – %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Peer, r.Transport, short(median), short(least), short(most),
		scaled(o.P99, 1e-3), scaled(o.Allocs, 1), scaled(o.TimesVerbs, 1), scaled(o.TimesRPC, 1), scaled(o.OverNetRPC, 1), scaled(o.LeastMost, 1), rounds, short(o.WallS), r.Policy, r.Pinning)
}

// scaled writes a figure that may not be known.
func scaled(v *float64, by float64) string {
	if v == nil {
		return "–"
	}
	return short(*v * by)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// barCells is the length of the longest bar.
const barCells = 48

// WriteBars plots every work as bars for a terminal. The scale is logarithmic:
// figures differ by a thousand.
func (t *Table) WriteBars(w io.Writer) error {
	out := &strings.Builder{}
	for _, work := range Works() {
		rows := t.of(work)
		scale := newLogScale(rows)
		if scale == nil {
			continue
		}
		fmt.Fprintf(out, "\n%s, logarithmic\n", work.Title())
		for _, r := range rows {
			v, _, _ := r.Figure()
			if math.IsNaN(v) {
				fmt.Fprintf(out, "%-22s │ %s\n", r.Label(), r.Status)
				continue
			}
			fmt.Fprintf(out, "%-22s │%s %s\n", r.Label(), bar(scale.at(v)*barCells), short(v))
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// bar is a bar of so many cells, to an eighth of a cell.
func bar(cells float64) string {
	eighths := max(int(math.Round(cells*8)), 1)
	s := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		s += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return s
}

// logScale maps figures to 0…1 between two powers of ten.
type logScale struct {
	low, high float64 // exponents
}

// newLogScale spans the rows' figures; nil if none has one.
func newLogScale(rows []*Row) *logScale {
	least, most := math.Inf(1), math.Inf(-1)
	for _, r := range rows {
		if v, lo, hi := r.Figure(); !math.IsNaN(v) {
			least, most = min(least, lo), max(most, hi)
		}
	}
	if math.IsInf(least, 0) {
		return nil
	}
	s := &logScale{math.Floor(math.Log10(least)), math.Ceil(math.Log10(most))}
	if s.high <= s.low {
		s.high = s.low + 1
	}
	return s
}

func (s *logScale) at(v float64) float64 {
	return min(max((math.Log10(v)-s.low)/(s.high-s.low), 0), 1)
}
