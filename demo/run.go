package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wherry-fabric/wherry/demo/report"
)

// Options of a run. The zero value is what the demo uses.
type Options struct {
	// Repeats is how often every method answers; 0 means DefaultRepeats.
	Repeats int
	// Budget bounds one answer of one method; 0 means DefaultBudget. A method that needs longer is
	// stopped and reported so. One whose first answer took more than a tenth of it is not repeated.
	Budget time.Duration
	// Distance is how far apart client and elements are said to be.
	Distance Distance
	// Progress, if set, is told before every answer what comes.
	Progress func(question, method string, round, rounds int)
}

const (
	DefaultRepeats = 5
	DefaultBudget  = 10 * time.Second
	MaxRepeats     = 1000
)

// Validate says what is wrong with options.
func (o *Options) Validate() error {
	if o.Repeats < 0 || o.Repeats > MaxRepeats {
		return fmt.Errorf("demo: %d repeats: 1 to %d are possible, 0 means %d", o.Repeats, MaxRepeats, DefaultRepeats)
	}
	if o.Budget < 0 {
		return fmt.Errorf("demo: a budget of %v: give a positive duration, or 0 for %v", o.Budget, DefaultBudget)
	}
	return o.Distance.Validate()
}

// method is one way to answer, and its figures so far.
type method struct {
	report.Method
	answer func(context.Context) (res result, trips, operations uint64, err error)
	rounds int
	times  []int64
	rank   *Ranking
}

// Run asks one question in all four ways, interleaved, and checks every answer.
// A method that fails is reported with its reason; Run itself fails only if the
// question is bad or the context ends.
func Run(ctx context.Context, d *Data, q Query, o Options) (*report.Question, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Repeats == 0 {
		o.Repeats = DefaultRepeats
	}
	if o.Budget == 0 {
		o.Budget = DefaultBudget
	}
	p, err := prepare(d, q)
	if err != nil {
		return nil, err
	}
	methods := p.methods(o.Repeats)
	// Round 0 is the first use (code travels and is compiled there); it has a figure of its own.
	for round := range o.Repeats + 1 {
		if round > 0 {
			if err := p.change(ctx, d, round); err != nil {
				return nil, err
			}
		}
		for _, m := range methods {
			if round > m.rounds || m.Failure != "" {
				continue
			}
			if o.Progress != nil {
				o.Progress(p.title(), m.Title, round, o.Repeats)
			}
			if err := p.measure(ctx, d, m, round, o.Budget); err != nil {
				return nil, err
			}
		}
	}
	out := &report.Question{Name: string(q.Kind), Title: p.title(), Answer: p.answer(d.Graph), Result: p.data(d.Graph), LocalNs: p.local.Nanoseconds(), Changes: p.changes}
	for _, m := range methods {
		m.finish(&o.Distance)
		out.Methods = append(out.Methods, m.Method)
		if m.rank != nil {
			out.Exact = p.exactness(m.rank)
		}
	}
	out.Note = note(p, out)
	return out, nil
}

func (p *prepared) methods(repeats int) []*method {
	inject := func(ctx context.Context) (result, uint64, uint64, error) {
		res, trips, err := p.inject(ctx)
		return res, trips, trips, err
	}
	read := func(s Style) func(context.Context) (result, uint64, uint64, error) {
		return func(ctx context.Context) (result, uint64, uint64, error) { return p.read(ctx, s) }
	}
	all := []*method{
		{Method: report.Method{Name: "injected", Title: "injected"}, answer: inject},
		{Method: report.Method{Name: "get", Title: "Get, one at a time"}, answer: read(OneAtATime)},
		{Method: report.Method{Name: "get-batched", Title: "Get, batched"}, answer: read(Batched)},
		{Method: report.Method{Name: "fetch-all", Title: "fetch all, compute"}, answer: read(FetchAll)},
	}
	for _, m := range all {
		m.rounds = repeats
	}
	if p.Kind == KindChase {
		all[2].Failure = "every hop depends on the one before: there is nothing to batch"
	}
	return all
}

// measure takes one answer of one method. What the method does wrong is its
// failure; the error is the end of the whole run.
func (p *prepared) measure(ctx context.Context, d *Data, m *method, round int, budget time.Duration) error {
	before, err := p.backend.Traffic(ctx)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	start := time.Now()
	res, trips, operations, err := m.answer(limited)
	took := time.Since(start)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, context.DeadlineExceeded) || limited.Err() != nil {
		why := fmt.Sprintf("stopped after %v", budget)
		if trips > 1 {
			why += ", in its round trip " + report.Count(trips)
		}
		m.fail(why)
		return nil
	}
	if err == nil {
		err = p.check(d.Graph, &res)
	}
	if err != nil {
		m.fail(err.Error())
		m.Broken = true
		return nil
	}
	after, err := p.backend.Traffic(ctx)
	if err != nil {
		return err
	}
	t := after.since(before)
	m.RoundTrips, m.Operations, m.Messages = trips, operations, t.Messages
	m.BytesToClient, m.BytesFromClient, m.BytesBetween = t.ToClient, t.FromClient, t.Between
	m.Checked, m.Chain, m.rank = true, res.chain, res.rank
	if round == 0 {
		m.FirstTimeNs = took.Nanoseconds()
		if took > budget/10 {
			m.rounds = 0 // once is enough of that
		}
		return nil
	}
	m.times = append(m.times, took.Nanoseconds())
	return nil
}

// fail keeps nothing but the reason.
func (m *method) fail(why string) {
	m.Method = report.Method{Name: m.Name, Title: m.Title, Failure: why}
}

// finish turns the times into a median and bounds, and adds what distance takes.
func (m *method) finish(d *Distance) {
	if m.Failure != "" {
		return
	}
	if len(m.times) == 0 {
		m.times = []int64{m.FirstTimeNs}
	}
	slices.Sort(m.times)
	m.Runs = len(m.times)
	m.TimeNs = m.times[len(m.times)/2]
	m.MinTimeNs, m.MaxTimeNs = m.times[0], m.times[len(m.times)-1]
	all := d.everybody(&m.Method).Nanoseconds()
	for _, t := range []*int64{&m.TimeNs, &m.MinTimeNs, &m.MaxTimeNs, &m.FirstTimeNs} {
		*t += all
	}
	if far := d.client(&m.Method).Nanoseconds(); far > 0 {
		m.FarTimeNs = m.TimeNs + far
	}
}

// exactness says what is certain about an injected ranking.
func (p *prepared) exactness(rk *Ranking) string {
	s := fmt.Sprintf("Every count is exact. The injected functions counted %s of %s; ", report.Count(uint64(rk.Counted)), p.noun.count(p.layout.Vertices))
	switch {
	case rk.Proven == len(rk.Top):
		return s + "that no others belong here is proven."
	case rk.Proven == 0:
		return s + "that no others belong here they did not prove: it was checked against the whole graph."
	case rk.Proven == 1:
		return s + "that the first rank is right is proven by that, the others were checked against the whole graph."
	default:
		return s + fmt.Sprintf("that the first %d ranks are right is proven by that, the others were checked against the whole graph.", rk.Proven)
	}
}

// note says why the injected functions lose, where they do: to each method that
// beats them, the fastest first.
func note(p *prepared, q *report.Question) string {
	var better []int
	for i := range q.Methods {
		if r := q.Shown(i); r > 0 && r < 1 {
			better = append(better, i)
		}
	}
	if len(better) == 0 {
		return ""
	}
	slices.SortStableFunc(better, func(a, b int) int { return cmp.Compare(q.Shown(a), q.Shown(b)) })
	inject := &q.Methods[0]
	if len(better) == 1 {
		other := &q.Methods[better[0]]
		return fmt.Sprintf("Here %q beats the injected functions. %s", other.Title, p.why(inject, other))
	}
	var titles, reasons []string
	for _, i := range better {
		other := &q.Methods[i]
		titles = append(titles, strconv.Quote(other.Title))
		reasons = append(reasons, fmt.Sprintf("%s: %s", other.Title, p.why(inject, other)))
	}
	last := len(titles) - 1
	return fmt.Sprintf("Here %s and %s beat the injected functions. %s", strings.Join(titles[:last], ", "), titles[last], strings.Join(reasons, " "))
}

// why says what makes one method faster than the injected functions, and when that ends.
func (p *prepared) why(inject, other *report.Method) string {
	bytes, sent := report.Size(other.BytesToClient), report.Plural(inject.Messages, "message", "messages")
	deep := report.Plural(other.RoundTrips, "round trip", "round trips")
	switch {
	case p.Kind == KindTop:
		return fmt.Sprintf("A ranking needs the whole graph, and %s of it are a single client's work; elements that have to agree sent each other %s. ", bytes, sent) +
			"That turns around when the graph no longer fits the client, or when it changes faster than it can be fetched."
	case other.Name == "fetch-all":
		return fmt.Sprintf("All that the question can touch is %s, which come in one round trip; the injected functions sent %s. ", bytes, sent) +
			"That turns around when the data is larger, when it changes between questions, or when the client has no room for it."
	case other.Name == "get-batched" && inject.Chain > 2*int(other.RoundTrips):
		return fmt.Sprintf("The search is only %s deep, and the client sees a whole level at a time. Of the functions' messages %d had to follow one another. ", deep, inject.Chain) +
			"That turns around when levels are too wide for the client's link."
	case other.Name == "get-batched":
		return fmt.Sprintf("The search is only %s deep, and at this latency they cost less than starting functions at the elements. ", deep) +
			"That turns around with the distance: see --client-rtt."
	}
	return fmt.Sprintf("It takes only %s, and at this latency a read costs less than starting a function. ", report.Plural(other.Operations, "read", "reads")) +
		"That turns around with the distance: see --client-rtt."
}
