package bench

import (
	"context"
	"math"
	"runtime"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/query"
)

// workers is how many workers of a server are measured beside one.
const workers = 2

// addWorkers measures what several workers at each server gain, and adds that to the figures: on servers of their own, as a server that has one
// CPU lets one worker work at once.
func (c *Config) addWorkers(ctx context.Context, spec role, dir string, r *Result) error {
	if runtime.NumCPU() < workers {
		return nil // one takes its turn after the other
	}
	wide := *c
	if spec.Workers = workers; c.Pin && !c.SameCPU {
		wide.ServerCPUs = workers
	}
	crew, err := wide.muster(ctx, spec, dir, 1)
	if err != nil {
		return err
	}
	defer crew.end()
	more, err := collect(crew.clients[0], &wide)
	if err != nil {
		return err
	}
	for _, name := range more.Names() {
		if r.Get(name) == nil {
			r.Set(name, more.Get(name))
		}
	}
	return nil
}

// queryWorkers asks each question in turns with one worker at each server and with several.
func (c *client) queryWorkers(t *cluster.Table) error {
	turns, all := queryTurns, 1.0
	if c.spec.Rounds > 0 {
		turns = c.spec.Rounds
	}
	for i, q := range inquiries {
		c.say(q.name+", more workers", float64(i)/float64(len(inquiries)))
		var one, several samples
		for turn := range turns + 1 {
			for _, n := range []int{1, c.spec.Workers} {
				ask := query.Query{Where: q.Where, Group: q.Group, Agg: q.Agg, Order: q.Order, Limit: q.Limit, Workers: n}
				_, took, err := c.askColumns(t, ask)
				switch {
				case err != nil:
					return err
				case turn == 0: // the function is compiled
				case n == 1:
					one = append(one, float64(took))
				default:
					several = append(several, float64(took))
				}
			}
		}
		gain := one.p(0.5) / several.p(0.5)
		c.r.Set(q.name+"_workers2_over_1", gain)
		all *= gain
	}
	c.r.Set("workers2_over_1", math.Pow(all, 1/float64(len(inquiries))))
	return nil
}
