package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	lib "github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/image"
)

const (
	hostileRounds = 5 // the usual number
	// hostileTime is the run time that each of them wants, patience how long anything of theirs may take here, and bombTime how long what is compiled beside is watched: twice what a compile may take.
	hostileTime = 5 * time.Second
	endlessTime = time.Minute
	patience    = 30 * time.Second
	bombTime    = 2500 * time.Millisecond
	// runsFor is how long an endless run goes on before it is canceled.
	runsFor = 20 * time.Millisecond
)

// ownMiB is the process's anonymous memory (RssAnon).
func ownMiB() uint64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "RssAnon:")
	var kib uint64
	fmt.Sscan(rest, &kib)
	return kib >> 10
}

// victim watches a server while hostile functions are there.
type victim struct {
	*client
	eve     *party // who sends what is hostile
	ann     *party // who is honest
	running int
	loadUs  float64 // the server's longest load
	first   float64 // the longest until a function had been made ready, or was refused, ns
	stalled float64 // the longest that a Send was not answered, ns
	slice   float64 // the longest that a run went on that had been canceled, ns
	sliceOf float64 // the most processor time that the server used from such a cancellation to the run's end, ns: without what others had of its processor
}

// look asks how the server is.
func (v *victim) look() error {
	t := time.Now()
	if err := v.ask(v.eps[0], idState, nil); err != nil {
		return err
	}
	v.stalled = max(v.stalled, float64(time.Since(t)))
	state := v.last.Load()
	v.running, v.loadUs = int(state>>32), float64(state&(1<<32-1))
	return nil
}

// watch looks every millisecond until done says so, which bound bounds.
func (v *victim) watch(bound time.Duration, done func() bool) error {
	for end := time.Now().Add(bound); !done(); time.Sleep(time.Millisecond) {
		if err := v.look(); err != nil {
			return err
		}
		if time.Now().After(end) {
			return context.DeadlineExceeded
		}
	}
	return nil
}

// party is a principal at the server.
type party struct {
	*lib.Client
	at *fabric.Endpoint
}

// join connects a principal.
func (c *client) join(name, who string) (*party, error) {
	tokens, err := tokensOf()
	if err != nil {
		return nil, err
	}
	s := c.spec.Servers[0]
	l, err := lib.Connect(c.ctx, lib.Config{Name: name, Nodes: []cluster.Member{{Name: s.Name, Addrs: []string{s.Addr}}}, Only: true, Tokens: tokens, Token: who,
		Schemes: fabric.Schemes{c.spec.scheme}, Policy: c.spec.Policy, Limits: fabric.Limits{LentBytes: sparseLent}})
	if err != nil {
		return nil, err
	}
	at, err := l.Endpoint(c.ctx, s.Name)
	if err != nil {
		l.Close()
		return nil, err
	}
	return &party{l, at}, nil
}

// start has a function run, which is closed with the future's end.
func (p *party) start(ctx context.Context, img *image.Image, table *cluster.Table, payload []byte) (*inject.Future, error) {
	f, err := p.Runtime().Prepare(img, table)
	if err != nil {
		return nil, err
	}
	root := inject.Root{To: p.at, Payload: payload}
	if table != nil {
		root.To = nil
	}
	fut, err := f.Start(ctx, []inject.Root{root}, inject.Options{})
	if err != nil {
		f.Close()
		return nil, err
	}
	go func() { <-fut.Done(); f.Close() }()
	return fut, nil
}

// hostile runs functions that mean ill, and measures what others notice: how long a run goes on that is to stop, how long
// making code takes, how late a Send is answered meanwhile.
func (c *client) hostile() error {
	v := &victim{client: c}
	var err error
	if v.eve, err = c.join("eve", "eve"); err != nil {
		return err
	}
	defer v.eve.Close()
	if v.ann, err = c.join("ann", "ann"); err != nil {
		return err
	}
	defer v.ann.Close()
	for _, part := range []func() error{v.inForm, v.endless, v.bombs, v.memory} {
		if err := part(); err != nil {
			return err
		}
	}
	c.r.Set("slice_ms_max", v.slice/1e6)
	c.r.Set("slice_cpu_ms_max", v.sliceOf/1e6)
	c.r.Set("compile_ms_max", v.first/1e6)
	c.r.Set("stalled_ms_max", v.stalled/1e6)
	if err := v.neighbours(); err != nil {
		return err
	}
	return c.crowds()
}

// inForm runs what is built in the form that is measured.
func (v *victim) inForm() error {
	c := v.client
	names := []string{"large"}
	if c.spec.Code.Form == "bitcode" {
		names = append(names, "bomb")
	}
	for range c.hostileRounds() {
		for _, h := range hostile {
			names = append(names, h.name)
		}
	}
	for i, name := range names {
		c.say("hostile functions: "+name, 0.2*float64(i)/float64(len(names)))
		if err := v.suffer(name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := v.serves(); err != nil {
			return fmt.Errorf("after %s: %w", name, err)
		}
	}
	c.r.Set("functions", len(names))
	v.first = max(v.first, v.loadUs*1e3)
	return nil
}

// endless cancels functions that never end and that go far between two looks at the clock, if nothing stops them: a leaf of 16,000 loads called 1,500 times
// straight, and copies of 128 MiB.
func (v *victim) endless() error {
	wide := "wide"
	if _, err := v.eve.Load(v.ctx, lib.LoadSpec{Name: wide, Blank: &lib.Blank{Rows: 1, Sizes: []uint64{getBytes}}}, nil); err != nil {
		return err
	}
	table, err := v.eve.Table(v.ctx, wide, "read")
	if err != nil {
		return err
	}
	calls, err := madeImage("leaf", leaf())
	if err != nil {
		return err
	}
	gets, err := v.spec.image("gets")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(v.ctx, patience)
	defer cancel()
	for i := range v.hostileRounds() {
		v.say("hostile functions: long straight code, long copies", 0.2+0.1*float64(i)/float64(v.hostileRounds()))
		for _, f := range []struct {
			img   *image.Image
			table *cluster.Table
		}{{calls, nil}, {gets, table}} {
			fut, err := v.eve.start(ctx, f.img, f.table, nil)
			if err == nil {
				err = v.stop(fut)
			}
			if err == nil {
				err = v.serves()
			}
			if err != nil {
				return fmt.Errorf("%s: %w", f.img.Name(), err)
			}
		}
	}
	return v.eve.Remove(v.ctx, wide)
}

// bombs has the server compile what takes a compiler long: each of them alone, and then forty at once, beside which an honest function is new.
func (v *victim) bombs() error {
	ctx, cancel := context.WithTimeout(v.ctx, 2*time.Minute)
	defer cancel()
	for name, code := range compileBombs() {
		v.say("bombs for the compiler: "+name, 0.35)
		img, err := madeImage("bomb", code)
		if err != nil {
			return err
		}
		from := time.Now()
		fut, err := v.eve.start(ctx, img, nil, nil)
		if err == nil {
			err = v.watch(patience, func() bool { return ended(fut) })
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		v.first = max(v.first, float64(time.Since(from)))
	}
	v.say("bombs for the compiler: forty at once", 0.4)
	var futures []*inject.Future
	for i := range 40 {
		img, err := madeImage("sixty", sixty(i))
		if err != nil {
			return err
		}
		fut, err := v.eve.start(ctx, img, nil, nil)
		if err != nil {
			return err
		}
		futures = append(futures, fut)
	}
	honest := make(chan error, 1)
	from, beside := time.Now(), time.Duration(0)
	go func() {
		img, err := madeImage("honest", module(0, body(true, branching(600)))) // which a process compiles, too
		if err == nil {
			var fut *inject.Future
			if fut, err = v.ann.start(ctx, img, nil, nil); err == nil {
				_, err = fut.Wait(ctx)
			}
			beside = time.Since(from)
		}
		honest <- err
	}()
	var err error
	over := func() bool {
		select {
		case err = <-honest:
			return true
		default:
			return false
		}
	}
	if werr := v.watch(patience, over); werr != nil || err != nil {
		return fmt.Errorf("an honest function beside forty bombs: %w", errors.Join(werr, err))
	}
	v.r.Set("compile_beside_ms", float64(beside)/1e6)
	v.first = max(v.first, float64(beside))
	for _, fut := range futures { // their sender leaves, and so their compilers end
		fut.Cancel()
	}
	return v.serves()
}

func (c *client) hostileRounds() int { return cmp.Or(c.spec.Rounds, hostileRounds) }

// suffer runs one of them.
func (v *victim) suffer(name string) error {
	img, err := v.spec.image(name)
	if err != nil {
		return err
	}
	f, err := v.rt.PrepareAs(img, nil, v.spec.wish())
	if err != nil {
		return err
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(v.ctx, patience)
	defer cancel()
	payload := make([]byte, 4096)
	if name == "bomb" {
		payload = nil // so that it adds nothing itself
	}
	from := time.Now()
	fut, err := f.Start(ctx, []inject.Root{{To: v.eps[0], Payload: payload}}, inject.Options{})
	if err != nil {
		return err
	}
	if name == "spin" {
		return v.stop(fut)
	}
	ended := func() bool {
		select {
		case <-fut.Done():
			return true
		default:
			return false
		}
	}
	if err := v.watch(patience, ended); err != nil {
		return err
	}
	if name == "large" { // where it is the first run that waits for the code
		v.first = max(v.first, float64(time.Since(from)))
	}
	if name != "bomb" { // its better code is made in the background
		return nil
	}
	from = time.Now()
	return v.watch(patience, func() bool { return time.Since(from) > bombTime })
}

// stop cancels an endless run and waits for its end.
func (v *victim) stop(fut *inject.Future) error {
	if err := v.watch(patience, func() bool { return v.running > 0 }); err != nil {
		return err
	}
	from := time.Now()
	if err := v.watch(patience, func() bool { return time.Since(from) > runsFor }); err != nil {
		return err
	}
	before, err := v.serverCPU()
	if err != nil {
		return err
	}
	fut.Cancel()
	for from = time.Now(); ; {
		if err := v.look(); err != nil {
			return err
		}
		if v.running == 0 {
			v.slice = max(v.slice, float64(time.Since(from)))
			after, err := v.serverCPU()
			v.sliceOf = max(v.sliceOf, after-before)
			return err
		}
		if time.Since(from) > patience {
			return errors.New("it goes on though it was canceled")
		}
	}
}

// serverCPU is the processor time that the server has used, ns.
func (v *victim) serverCPU() (float64, error) {
	err := v.ask(v.eps[0], idCPU, nil)
	return float64(v.last.Load()), err
}

// serves reports whether the server still runs what is no trouble.
func (v *victim) serves() error { return v.servesIn(v.ctx) }

func (v *victim) servesIn(ctx context.Context) error {
	img, err := v.spec.image("echo")
	if err != nil {
		return err
	}
	f, err := v.rt.PrepareAs(img, nil, v.spec.wish())
	if err != nil {
		return err
	}
	defer f.Close()
	got, err := f.Do(ctx, inject.Root{To: v.eps[0], Payload: []byte("still there")}, nil)
	if err == nil && string(got) != "still there" {
		err = fmt.Errorf("the server answers %q", got)
	}
	return err
}
