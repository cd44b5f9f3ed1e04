package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/wherry-fabric/wherry/internal/memcg"
)

// plan is a run of the whole: rounds, in which each side has one turn with each workload.
type plan struct {
	options
	workloads []workload
	sides     []string          // but for local
	without   map[string]string // sides and workloads that cannot be had here, and why
}

func (p *plan) run(ctx context.Context) error {
	dir, err := os.MkdirTemp(p.dir, "bench-memory-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, err := compile(dir)
	if err != nil {
		return err
	}
	root, err := memcg.Find()
	if err == nil {
		err = root.Usable()
	}
	if err != nil {
		return err
	}
	var most int64
	for _, w := range p.possible() {
		most = max(most, w.needs())
	}
	n, err := startNode(ctx, p.wherry, dir, most, slices.Contains(p.sides, "remote"))
	if err != nil {
		return err
	}
	defer n.stop()
	b := &bench{wherry: p.wherry, program: program, dir: dir, root: root, node: n, bytes: most}
	r := &results{rounds: p.rounds, sides: p.sides, without: p.without}
	err = p.all(ctx, b, r)
	if p.json {
		return errors.Join(err, json.NewEncoder(os.Stdout).Encode(r.flat()))
	}
	return errors.Join(err, r.print(os.Stdout))
}

// all measures every workload. What fails is told in the end, and in its own row; the other rows are measured all the same.
func (p *plan) all(ctx context.Context, b turner, r *results) (err error) {
	for _, w := range p.possible() {
		row, e := p.measure(ctx, b, w)
		if e != nil {
			e = fmt.Errorf("%s: %w", w.name, e)
			err = errors.Join(err, e)
			p.without[w.name] = "failed: " + e.Error()
		}
		if row != nil {
			r.rows = append(r.rows, row)
			for _, side := range slices.Sorted(maps.Keys(row.failed)) {
				err = errors.Join(err, fmt.Errorf("%s, %s: %s", w.name, side, row.failed[side]))
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return err
}

// possible are the workloads that this machine can run. The others are left out, each with its reason.
func (p *plan) possible() (list []workload) {
	for _, w := range p.workloads {
		if p.without[w.name] != "" {
			continue
		}
		if err := w.check(); err != nil {
			p.without[w.name] = err.Error()
		} else {
			list = append(list, w)
		}
	}
	return list
}

// turner runs one turn: a bench, or a test's.
type turner interface {
	turn(ctx context.Context, side string, w workload, limit int64) (a answer, peak int64, err error)
}

// measure runs one workload: once over tcp for what wherry takes of memory, which is every swap's bound, and then in rounds. A side that
// fails takes no more turns in it. The row has what was measured before an error, and is nil where that is nothing.
func (p *plan) measure(ctx context.Context, b turner, w workload) (*row, error) {
	_, peak, err := b.turn(ctx, "tcp", w, 0)
	if err != nil {
		return nil, err
	}
	row := &row{workload: w, limit: peak, ratios: map[string][]float64{}, killed: map[string]int{}, failed: map[string]string{}}
	for round := range p.rounds {
		local, _, err := b.turn(ctx, "local", w, 0)
		if err != nil && len(row.local) == 0 {
			return nil, err
		} else if err != nil {
			return row, err
		}
		row.local = append(row.local, local.seconds)
		fmt.Fprintf(os.Stderr, "%s, round %d of %d: local %.2f s", w.name, round+1, p.rounds, local.seconds)
		for _, side := range p.sides {
			if p.without[side] != "" || row.failed[side] != "" {
				continue
			}
			a, _, err := b.turn(ctx, side, w, peak)
			if err == nil && a.found != local.found {
				err = fmt.Errorf("it found %s, the local run %s", a.found, local.found)
			}
			switch {
			case errors.Is(err, errSide):
				p.without[side] = err.Error()
			case errors.Is(err, errKilled):
				row.killed[side]++
			case ctx.Err() != nil:
				return row, context.Cause(ctx)
			case err != nil:
				row.failed[side] = err.Error()
			default:
				row.ratios[side] = append(row.ratios[side], a.seconds/local.seconds)
				fmt.Fprintf(os.Stderr, ", %s %.2f", side, a.seconds)
				continue
			}
			fmt.Fprintf(os.Stderr, ", %s %v", side, err)
		}
		fmt.Fprintln(os.Stderr)
	}
	return row, nil
}

// row is what a workload took.
type row struct {
	workload
	limit  int64 // bytes of each swap
	local  []float64
	ratios map[string][]float64 // by side, of each round: its time to the local one's
	killed map[string]int       // rounds without an answer
	failed map[string]string    // sides that were given up, and why
}

type results struct {
	rounds  int
	sides   []string
	without map[string]string
	rows    []*row
}

func median(of []float64) float64 {
	s := slices.Sorted(slices.Values(of))
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

// flat is one object: slowdowns by workload and side, and what they were taken with.
func (r *results) flat() map[string]any {
	m := map[string]any{"rounds": r.rounds}
	for _, row := range r.rows {
		m[row.name+"_mib"] = row.mib
		m[row.name+"_limit_bytes"] = row.limit
		m[row.name+"_local_s"] = median(row.local)
		for _, side := range r.sides {
			m[row.name+"_"+side] = nil
			if ratios := row.ratios[side]; len(ratios) > 0 {
				m[row.name+"_"+side] = median(ratios)
			}
			if n := row.killed[side]; n > 0 {
				m[row.name+"_"+side+"_killed"] = n
			}
			if why := row.failed[side]; why != "" {
				m[row.name+"_"+side+"_failed"] = why
			}
		}
	}
	for side, why := range r.without {
		m[side+"_missing"] = why
	}
	maps.Copy(m, settings(r.sides))
	return m
}

func (r *results) print(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "workload\tMiB\t--local\tswap's limit\tlocal\t%s\t\n", strings.Join(r.sides, "\t"))
	for _, row := range r.rows {
		fmt.Fprintf(w, "%s\t%d\t%d MiB\t%d MiB\t%.2f s\t", row.name, row.mib, row.workload.local, row.limit>>20, median(row.local))
		for _, side := range r.sides {
			if row.failed[side] != "" {
				fmt.Fprint(w, "failed\t")
			} else if ratios := row.ratios[side]; len(ratios) > 0 {
				fmt.Fprintf(w, "%.2f×\t", median(ratios))
			} else if row.killed[side] > 0 {
				fmt.Fprint(w, "killed\t")
			} else {
				fmt.Fprint(w, "-\t")
			}
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(to, "slowdowns: medians of %d rounds, each to its round's local run\n", r.rounds)
	for _, side := range slices.Sorted(maps.Keys(r.without)) {
		fmt.Fprintf(to, "  no %s: it %s\n", side, r.without[side])
	}
	for _, s := range slices.Sorted(maps.Keys(settings(r.sides))) {
		fmt.Fprintf(to, "  %s: %v\n", s, settings(r.sides)[s])
	}
	return err
}
