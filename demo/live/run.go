package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/demo"
	"github.com/wherry-fabric/wherry/demo/debgraph"
	"github.com/wherry-fabric/wherry/demo/report"
	"github.com/wherry-fabric/wherry/fabric"
)

// DefaultElements is how many node processes the demo starts.
const DefaultElements = 4

// Options say what the demo asks, and of whom.
type Options struct {
	Graph   *debgraph.Graph
	Queries []demo.Query // nil: demo.DefaultQueries
	Run     demo.Options

	// Programs start nodes, which take them in turn; Elements (DefaultElements if 0) are started.
	Programs []Program
	Elements int
	Policy   fabric.Policy
	// Client and Nodes are used instead, if there is a Client: the data is loaded there and taken away afterwards.
	Client *client.Client
	Nodes  []string

	// Progress hears what is done; nil: nobody does.
	Progress func(text string, done, all int)
}

// Run is the whole demo: nodes, data, questions. Every answer in the report was checked.
// If the context ends, that is the error, whatever else came of it.
func Run(ctx context.Context, o Options) (*report.Report, error) {
	r, err := o.run(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return r, err
}

func (o *Options) run(ctx context.Context) (*report.Report, error) {
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	if o.Elements == 0 {
		o.Elements = DefaultElements
	}
	if err := o.Run.Validate(); err != nil {
		return nil, err
	}
	if o.Queries == nil {
		o.Queries = demo.DefaultQueries(o.Graph)
	}
	if o.Client != nil {
		o.Elements = len(o.Nodes)
	}
	graph, chase, err := Layouts(o.Graph, o.Elements)
	if err != nil {
		return nil, err
	}
	for _, q := range o.Queries { // before anything is started
		if err := demo.CheckQuery(o.Graph, q); err != nil {
			return nil, err
		}
	}
	lends := uint64(0)
	var code *native
	if o.Client == nil {
		if code, err = newNative(o.Programs); err != nil {
			return nil, err
		}
		lends = Need(graph, chase)
		cfg := ClusterConfig{Programs: o.Programs, Nodes: o.Elements, Memory: lends, Policy: o.Policy, Progress: o.Progress}
		if code != nil {
			cfg.Trust = code.public
		}
		c, err := StartCluster(ctx, cfg)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		o.Client, o.Nodes = c.Client, c.Names
	} else if err := meshed(ctx, o); err != nil {
		return nil, err
	}
	r, err := o.ask(ctx, code)
	if err != nil {
		return nil, err
	}
	if lends > 0 {
		r.Environment.Processors = processors(o.Programs, o.Elements)
	}
	r.Environment.DataBytes, r.Environment.LentBytes = graph.Bytes()+chase.Bytes(), lends
	return r, nil
}

func meshed(ctx context.Context, o *Options) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	return Meshed(ctx, o.Client, o.Nodes)
}

// ask loads the data and asks all questions; code is what is asked besides, nil: nothing.
func (o *Options) ask(ctx context.Context, code *native) (r *report.Report, err error) {
	o.Progress("loading the graph", 0, 1)
	loaded, err := Load(ctx, o.Client, o.Nodes, o.Graph)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, loaded.Close()) }()
	env := demo.Host(o.Graph, o.Elements, time.Now())
	env.Transports, env.EmulatedRTTNs = loaded.opened[0].Transports(), o.Run.Distance.RTT.Nanoseconds()
	env.ClientRTTNs, env.ClientBitsPerS = o.Run.Distance.ClientRTT.Nanoseconds(), o.Run.Distance.Bandwidth
	r = &report.Report{Environment: env}
	data := loaded.Data
	for i, q := range o.Queries {
		run := o.Run
		run.Progress = func(question, method string, round, rounds int) {
			o.Progress(fmt.Sprintf("%s %s", question, method), i*(rounds+1)+round, len(o.Queries)*(rounds+1))
		}
		answer, err := demo.Run(ctx, &data, q, run)
		if err != nil {
			return nil, err
		}
		r.Questions = append(r.Questions, *answer)
	}
	if code != nil {
		if r.Environment.Objects, r.Environment.Bitcode, err = code.ask(ctx, loaded, o.Programs); err != nil {
			return nil, err
		}
	}
	r.Cross()
	slices.SortStableFunc(r.Questions, func(a, b report.Question) int { return cmp.Compare(b.Win(), a.Win()) }) // the greatest win first
	return r, nil
}
