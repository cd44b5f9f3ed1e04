package inject_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/internal/sockdir"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == compilerMark {
		os.Exit(beCompiler(os.Args[2]))
	}
	if err := sockdir.Shorten(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

const (
	// patience bounds every wait that a bug could make endless.
	patience = 40 * time.Second
	// shortTime is what an invocation has whose time is to run out, but not before it runs.
	shortTime = 2 * time.Second
)

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until f says "", and fails with what it says otherwise.
func eventually(t testing.TB, f func() string) {
	t.Helper()
	end := time.Now().Add(patience)
	for tries := 0; ; tries++ {
		time.Sleep(time.Duration(min(tries, 1)) * 2 * time.Millisecond)
		s := f()
		if s == "" {
			return
		}
		if tries > 20 && time.Now().After(end) { // a machine that stood still has tried nothing
			t.Fatal(s)
		}
	}
}

// sight is what a spy saw of one run.
type sight struct {
	began bool // it was a visit when the function was called …
	stays bool // … and still was one when that returned
	leads bool // on the goroutine that drives the fabric
	ended bool
	err   error
}

// spy is an engine that looks at each run as it begins and ends.
type spy struct {
	abi.Engine
	mu    sync.Mutex
	seen  []*sight                  // in the order in which they began
	begin func(h abi.Host)          // is called as each run begins
	make  func(ctx context.Context) // is called before each instance that the engine makes; unless nil, none is ready
	logs  []string
	bound [][]abi.Window // that programs were bound to
	log   func()         // is called on each line that a function logs
}

// watch forgets what was seen, and has begin and log called from here on. It returns what was logged.
func (s *spy) watch(begin func(abi.Host), log func()) (logs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	logs = s.logs
	s.seen, s.logs, s.begin, s.log = nil, nil, begin, log
	return logs
}

// runs are those that have begun, in that order.
func (s *spy) runs() (seen []sight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.seen {
		seen = append(seen, *one)
	}
	return seen
}

func (s *spy) output(_, _, text string) {
	s.mu.Lock()
	log := s.log
	s.logs = append(s.logs, text)
	s.mu.Unlock()
	if log != nil {
		log()
	}
}

func (s *spy) Load(ctx context.Context, code abi.Code) (abi.Program, error) {
	p, err := s.Engine.Load(ctx, code)
	return spyProgram{p, s}, err
}

type spyProgram struct {
	abi.Program
	spy *spy
}

func (p spyProgram) Bind(ctx context.Context, principal string, windows []abi.Window) (abi.Bound, error) {
	b, err := p.Program.Bind(ctx, principal, windows)
	p.spy.mu.Lock()
	p.spy.bound = append(p.spy.bound, windows)
	p.spy.mu.Unlock()
	return spyBound{b, p.spy}, err
}

type spyBound struct {
	abi.Bound
	spy *spy
}

func (b spyBound) Reserve(scratch uint64) (abi.Place, error) {
	p, err := b.Bound.Reserve(scratch)
	if err != nil {
		return nil, err
	}
	return spyPlace{p, b.spy}, nil
}

type spyPlace struct {
	abi.Place
	spy *spy
}

// making has f called before each instance that the engine gives.
func (s *spy) making(f func(ctx context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.make = f
}

func (s *spy) makes() func(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.make
}

func (b spyPlace) Ready() bool { return b.spy.makes() == nil && b.Place.Ready() }

func (b spyPlace) Acquire(ctx context.Context) (abi.Instance, error) {
	if f := b.spy.makes(); f != nil {
		f(ctx)
	}
	in, err := b.Place.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return spyInstance{in, b.spy}, nil
}

type spyInstance struct {
	abi.Instance
	spy *spy
}

func (in spyInstance) Run(payload []byte, limits *abi.Limits, h abi.Host) (abi.Status, error) {
	one := &sight{began: inject.Visits(h), leads: inject.Leads(h)}
	in.spy.mu.Lock()
	in.spy.seen = append(in.spy.seen, one)
	begin := in.spy.begin
	in.spy.mu.Unlock()
	if begin != nil {
		begin(h)
	}
	st, err := in.Instance.Run(payload, limits, h)
	stays := one.began && inject.Visits(h)
	in.spy.mu.Lock()
	defer in.spy.mu.Unlock()
	one.stays, one.err, one.ended = stays, err, true
	return st, err
}

// street is three nodes with words of memory and a client, all connected, and the function steps, which all know.
type street struct {
	t      testing.TB
	client *member
	nodes  []*member
	spies  []*spy
	table  *cluster.Table
	memory []*fabric.Segment
	before [houses]counts // as it was when all was cleared
	f      *inject.Function
}

const houses = 3

func newStreet(t testing.TB, changes ...func(*inject.Config)) *street {
	t.Helper()
	return newStreetOver(t, "tcp", changes...)
}

// newStreetOver makes one that is connected by another transport: "shm".
func newStreetOver(t testing.TB, transport string, changes ...func(*inject.Config)) *street {
	t.Helper()
	s := &street{t: t, table: &cluster.Table{Name: "words", Version: 1, Kind: cluster.Raw,
		Sharding: cluster.Sharding{Kind: cluster.Block, Elements: houses, Rows: houses * words}}}
	for i := range houses {
		watch := &spy{}
		s.nodes = append(s.nodes, newMember(t, fmt.Sprintf("n%d", i), true, fabric.Balanced, append(changes, func(c *inject.Config) {
			watch.Engine = c.Engines[0]
			c.Engines, c.Output = []abi.Engine{watch}, watch.output
		})...))
		s.spies = append(s.spies, watch)
		el := s.nodes[i].el
		if transport == "shm" {
			addr, err := el.Listen(fmt.Sprintf("shm://%s/street.sock", t.TempDir()))
			if err != nil {
				t.Fatal(err)
			}
			s.nodes[i].addr = addr
		}
		seg, err := el.NewSegment(words*8, fabric.Writable)
		if err != nil {
			t.Fatal(err)
		}
		key, err := seg.Key(fabric.RightRead | fabric.RightWrite | fabric.RightAtomic)
		if err != nil {
			t.Fatal(err)
		}
		s.memory = append(s.memory, seg)
		s.table.Shards = append(s.table.Shards, cluster.Shard{Element: el.Name(), Incarnation: el.Incarnation(), Addrs: el.Addrs(),
			Windows: []cluster.Window{{Key: key, Size: words * 8, Writable: true}}})
	}
	s.table.FillRows()
	s.client = connect(t, s.nodes, fabric.Balanced)
	s.f = s.prepare(s.client, "steps")
	for i := range uint8(houses) { // whoever was dialled may not know of it yet
		program := payload(1, fork((i+1)%houses), fork((i+2)%houses))
		eventually(t, func() string {
			fut, err := s.f.Start(within(t, time.Second), []inject.Root{{Element: uint32(i), Payload: program}}, inject.Options{})
			if err == nil {
				_, err = fut.Wait(within(t, patience))
			}
			if err != nil {
				return err.Error()
			}
			return ""
		})
	}
	s.idle()
	return s
}

// prepare makes a function of the name, which is another one to all, that is closed with the test.
func (s *street) prepare(m *member, name string) *inject.Function {
	s.t.Helper()
	return s.prepareImage(m, stepsImage(s.t, name, nil))
}

func (s *street) prepareImage(m *member, img *image.Image) *inject.Function {
	s.t.Helper()
	f, err := m.rt.Prepare(img, s.table)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(f.Close)
	return f
}

// clear makes all words 0 and forgets what was seen.
func (s *street) clear() {
	for i, seg := range s.memory {
		clear(seg.Bytes())
		s.spies[i].watch(nil, nil)
		s.before[i] = s.count(i)
	}
}

// count is what an element says that it has done so far.
func (s *street) count(at int) counts {
	rt := s.nodes[at].rt
	c := rt.Stats().Counters
	n := counts{began: c.Runs, forwards: c.Forwards, forks: c.Forks}
	list, _ := rt.Functions(100)
	for _, f := range list {
		n.ended += f.Runs
	}
	return n
}

// call has a member call an element, and get an answer.
func (s *street) call(from *member, at uint8) {
	s.t.Helper()
	want := newModel(houses).play(at, payload(3))
	got, err := s.prepare(from, "steps").Do(within(s.t, patience), inject.Root{Element: uint32(at), Payload: payload(3)}, nil)
	if d := want.matches([]string{string(got)}, err); d != "" {
		s.t.Error(d)
	}
}

// start starts a program at an element.
func (s *street) start(ctx context.Context, at uint8, program []byte) *inject.Future {
	s.t.Helper()
	fut, err := s.f.Start(ctx, []inject.Root{{Element: uint32(at), Payload: program}}, inject.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	return fut
}

// wait is what an invocation returned: of each branch all bytes.
func wait(t testing.TB, fut *inject.Future) (results []string, err error) {
	t.Helper()
	r, err := fut.Wait(within(t, patience))
	if err != nil {
		return nil, err
	}
	for i, p := range r.Pieces {
		if i == 0 || r.Pieces[i-1].Branch != p.Branch {
			results = append(results, "")
		}
		results[len(results)-1] += string(p.Data)
	}
	return results, nil
}

// idle waits until nothing runs any more.
func (s *street) idle() {
	s.t.Helper()
	eventually(s.t, func() string {
		for _, m := range s.nodes {
			if z := m.rt.Stats().Sizes; z.Running+z.HeldRuns+z.Queued > 0 {
				return fmt.Sprintf("%s still runs %+v", m.el.Name(), z)
			}
		}
		return ""
	})
}

// quiet waits until nobody keeps anything of an invocation.
func (s *street) quiet() {
	s.t.Helper()
	eventually(s.t, func() string {
		for _, m := range append(s.nodes, s.client) {
			if z := m.rt.Stats().Sizes; z.Futures+z.Invocations+z.Running+z.HeldRuns+z.Records > 0 {
				return fmt.Sprintf("%s still holds %+v", m.el.Name(), z)
			}
		}
		return ""
	})
}

// differs says what of the memory, the logs and the counts is not as the model has it.
func (s *street) differs(m *model) string {
	var logs []string
	for i, seg := range s.memory {
		for k, want := range m.words[i] {
			if got := binary.LittleEndian.Uint64(seg.Bytes()[k*8:]); got != want {
				return fmt.Sprintf("word %d of n%d is %x, want %x", k, i, got, want)
			}
		}
		is, was := s.count(i), s.before[i]
		if got := (counts{is.began - was.began, is.ended - was.ended, is.forwards - was.forwards, is.forks - was.forks}); got != m.counts[i] {
			return fmt.Sprintf("n%d counts %+v, want %+v", i, got, m.counts[i])
		}
		logs = append(logs, s.spies[i].watch(nil, nil)...)
	}
	if slices.Sort(logs); !slices.Equal(logs, m.logs) {
		return fmt.Sprintf("logged %q, want %q", logs, m.logs)
	}
	return ""
}

// ready plays something until that is a visit, so that the next one most likely is too, and waits until nothing is done.
func (s *street) ready(at uint8) {
	s.t.Helper()
	eventually(s.t, func() string {
		s.clear()
		if _, err := s.f.Do(within(s.t, patience), inject.Root{Element: uint32(at), Payload: payload(1)}, nil); err != nil {
			s.t.Fatal(err)
		}
		s.idle()
		if seen := s.spies[at].runs(); len(seen) != 1 || !seen[0].began {
			return fmt.Sprintf("n%d makes no visits", at)
		}
		return ""
	})
	s.clear()
}

// streets are one after the other: elements that keep in mind what was canceled make no visits until that is over.
type streets struct {
	t         testing.TB
	transport string
	now       *street // nil: the next one is to be a new one
}

func (s *streets) get() *street {
	if s.now == nil {
		s.now = newStreetOver(s.t, s.transport)
	}
	return s.now
}

// visited plays a program at element at until the run there begins as a visit, and checks each time what
// becomes of it. Whether it does depends on what else an element has to do just then.
func visited(t testing.TB, all *streets, at uint8, program []byte) sight {
	t.Helper()
	want := newModel(houses).play(at, program)
	for end := time.Now().Add(patience); ; {
		s := all.get()
		s.ready(at)
		results, err := wait(t, s.start(within(t, patience), at, program))
		s.idle()
		if err != nil {
			all.now = nil
		}
		if d := want.matches(results, err); d != "" {
			t.Fatal(d)
		}
		seen := s.spies[at].runs()
		if len(seen) == 0 || !seen[0].ended {
			t.Fatalf("nothing ran at n%d", at)
		}
		if d := s.differs(want); d != "" && err == nil {
			t.Fatal(d)
		}
		if seen[0].began {
			return seen[0]
		}
		if time.Now().After(end) {
			t.Fatal("no run began as a visit")
		}
	}
}
