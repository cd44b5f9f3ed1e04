package bench

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lib "github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/pool"
)

// One principal takes places of every kind in turn, by as many connections as it likes, while another makes honest calls.

const (
	honestCalls = 1000             // with the usual number of rounds
	honestTime  = 10 * time.Second // a call's deadline
	fillTimes   = 20 * time.Second // for a bound to be met, with the usual number of rounds
	eves        = 6                // connections of the principal that takes all
	evesCalls   = 64               // of each
	evesBytes   = 4 << 20          // of large requests
	honestBytes = 256 << 10        // more than travels in a message
	silent      = 400              // diallers that say nothing, and come again
	slow        = 200              // … that say a byte now and then
	crowded     = 3                // times as many are more than there are places for such
	honestDials = 40               // with the usual number of rounds
	leastCharge = 256              // MiB that functions are charged, so that it says something what the node has over that: of less, what Go keeps for itself is much
)

// neighbour is a station of another principal at the same server.
func (c *client) neighbour(name, who string) (*station, error) {
	spec := *c.spec
	spec.Name = name
	s, err := newStationOf(&spec, false, named(who))
	if err != nil {
		return nil, err
	}
	if err := s.dialAll(c.ctx, c.spec.Servers); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// neighbours measures what becomes of honest calls beside a principal that takes all it can, of one kind after the other.
func (v *victim) neighbours() error {
	var crowd []*party
	defer func() {
		for _, e := range crowd {
			e.Close()
		}
	}()
	for i := range eves {
		e, err := v.join(fmt.Sprint("eve", i), "eve")
		if err != nil {
			return err
		}
		crowd = append(crowd, e)
	}
	failed, calls := 0, 0
	firstWhy, full, short := "", 0, []string{}
	kinds := slices.Clone(greedy)
	if strings.HasPrefix(v.spec.Servers[0].Addr, "tcp:") {
		kinds = slices.DeleteFunc(kinds, func(k kind) bool { return k.what == addresses })
	}
	each := honestCalls * v.hostileRounds() / hostileRounds
	for i, k := range kinds {
		v.say("one principal takes "+k.what, 0.5+0.3*float64(i)/float64(len(kinds)))
		ctx, cancel := context.WithTimeout(v.ctx, time.Minute)
		if err := v.quiet(); err != nil {
			cancel()
			return err
		}
		var took sync.WaitGroup
		gain, before := &gains{}, v.last.Load()
		for n, e := range crowd {
			took.Go(func() { k.take(&greed{victim: v, party: e, ctx: ctx, number: n, gain: gain}) }) // what is refused is what is wanted
		}
		met, err := v.fill(k.what, gain, before)
		if err != nil {
			cancel()
			return err
		}
		if met {
			full++
		} else {
			short = append(short, k.what)
		}
		for upTo := max(each*(i+1)/len(kinds), calls+1); calls < upTo; {
			calls++
			if err := v.honest(calls); err != nil {
				if failed++; firstWhy == "" {
					firstWhy = fmt.Sprintf("%s: %v", k.what, err)
				}
			}
		}
		cancel()
		took.Wait()
	}
	v.r.Set("others_failed", failed)
	v.r.Set("others_calls", calls)
	v.r.Set("places_full", full)
	v.r.Set("places_not_full", strings.Join(short, "; ")) // there the honest calls say little
	if firstWhy != "" {
		v.r.Set("others_failed_with", firstWhy)
	}
	return nil
}

// quiet waits until nothing waits at the server any more.
func (v *victim) quiet() error {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if err := v.ask(v.eps[0], idPlaces, nil); err != nil {
			return err
		}
		if v.last.Load()&(1<<waitsBits-1) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return errors.New("what one principal took is not given back")
		}
	}
}

// fill waits until a bound is met; false: it was not in time, of which a run of few rounds has less.
func (v *victim) fill(what string, gain *gains, before uint64) (met bool, err error) {
	end := time.Now().Add(fillTimes * time.Duration(v.hostileRounds()) / hostileRounds)
	time.Sleep(300 * time.Millisecond)
	for err == nil && !met && time.Now().Before(end) {
		if met, err = v.full(what, gain, before); !met {
			time.Sleep(10 * time.Millisecond)
		}
	}
	return met, err
}

// crowds measures connecting beside those that say nothing or little.
func (c *client) crowds() error {
	if err := c.diallers(1, "dials_failed", "dial_ms_p99"); err != nil {
		return err
	}
	if !strings.HasPrefix(c.spec.Servers[0].Addr, "tcp:") { // of shm's 256 places 600 leave none
		return nil
	}
	return c.diallers(crowded, "dials_full_failed", "dial_full_ms_p99")
}

// memory measures what the server takes beside what functions are charged, while they fill their heaps, recur as deep as they can, and become a hundred times as
// much machine code.
func (v *victim) memory() error {
	v.say("memory", 0.45)
	look := func() (charged, has float64, err error) {
		if err = v.ask(v.eps[0], idMemory, nil); err != nil {
			return 0, 0, err
		}
		has = float64(v.last.Load())
		st, err := v.ann.Status(v.ctx, v.spec.Servers[0].Name)
		if err != nil {
			return 0, 0, err
		}
		return float64(st.CodeCache.InstanceBytes+st.CodeCache.MachineBytes) / (1 << 20), has, nil
	}
	chargedBefore, before, err := look()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(v.ctx, patience)
	defer cancel()
	var running []*inject.Future
	start := func(img *image.Image, err error) error {
		if err != nil {
			return err
		}
		fut, err := v.eve.start(ctx, img, nil, make([]byte, 64))
		running = append(running, fut)
		return err
	}
	for i := range fillers * fillEach {
		err = cmp.Or(err, start(v.spec.image(fmt.Sprint("fill", i%fillers))))
	}
	for range 4 {
		err = cmp.Or(err, start(v.spec.image("recursive")))
	}
	for i := range 7 {
		err = cmp.Or(err, start(madeImage("machine", machineCode(i))))
	}
	if err != nil {
		return err
	}
	most, mostCharged, over, uncharged, last := 0.0, 0.0, 0.0, 0.0, chargedBefore
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		charged, has, err := look()
		if err != nil {
			return err
		}
		most, mostCharged = max(most, has), max(mostCharged, charged)
		more := max(charged, last) - chargedBefore // what it has was looked at between the two
		last = charged
		if uncharged = max(uncharged, has-before-more); more >= leastCharge {
			over = max(over, (has-before)/more)
		}
		if slices.IndexFunc(running, func(fut *inject.Future) bool { return !ended(fut) }) < 0 {
			break
		}
	}
	for _, fut := range running {
		fut.Cancel()
		<-fut.Done()
	}
	if over == 0 {
		return fmt.Errorf("memory: functions that fill their heaps and stacks were charged %.0f MiB at most, and of less than %d what Go keeps for itself is too much of it to compare with what the node has; where the node has too little memory for them, this cannot be measured", mostCharged-chargedBefore, leastCharge)
	}
	v.r.Set("rss_mib_max", most)
	v.r.Set("charged_mib_max", mostCharged)
	v.r.Set("rss_over_charged", over)
	v.r.Set("rss_uncharged_mib_max", uncharged) // at any charge
	return nil
}

func ended(fut *inject.Future) bool {
	select {
	case <-fut.Done():
		return true
	default:
		return false
	}
}

// honest makes a call, has a function run, one of which the server does not know yet, loads a dataset, or takes and gives back memory of the pool.
func (v *victim) honest(n int) error {
	ctx, cancel := context.WithTimeout(v.ctx, honestTime)
	defer cancel()
	name := v.spec.Servers[0].Name
	switch n % 8 {
	case 0: // which takes memory of requests
		_, err := echo.Call(ctx, v.ann.RPC(), v.ann.at, make([]byte, honestBytes))
		return err
	case 1:
		_, err := v.ann.Load(ctx, lib.LoadSpec{Name: "honest", Replace: true, Blank: &lib.Blank{Rows: 8, Sizes: []uint64{4096}}}, nil)
		return err
	case 2:
		r, err := v.ann.Pool().CreateRegion(ctx, name, pool.Spec{Name: "honest", Size: 4096})
		if err == nil {
			err = r.Put(ctx, []byte("still there"), 0)
		}
		if err == nil {
			err = r.Destroy(ctx)
		}
		return err
	case 3:
		img, err := another(xrdma.Echo(), fmt.Sprint("honest", n))
		if err != nil {
			return err
		}
		return v.echoes(ctx, img)
	case 4, 6:
		return v.echoes(ctx, xrdma.Echo())
	}
	_, err := echo.Call(ctx, v.ann.RPC(), v.ann.at, []byte("still there"))
	return err
}

// echoes has an honest function run.
func (v *victim) echoes(ctx context.Context, img *image.Image) error {
	f, err := v.ann.Runtime().Prepare(img, nil)
	if err != nil {
		return err
	}
	defer f.Close()
	got, err := f.Do(ctx, inject.Root{To: v.ann.at, Payload: []byte("still there")}, nil)
	if err == nil && string(got) != "still there" {
		err = fmt.Errorf("the server answers %q", got)
	}
	return err
}

// another is the same function by another name, which is another function to all that have it.
func another(img *image.Image, name string) (*image.Image, error) {
	m := img.Manifest()
	m.Name = name
	return image.Build(m, img.Entries()...)
}

// diallers measures how long connecting takes beside those that say nothing, or hardly anything, and beside so many times as many.
func (c *client) diallers(times int, asFailed, asP99 string) error {
	c.say("silent and slow diallers", 0.75)
	scheme, rest, _ := strings.Cut(c.spec.Servers[0].Addr, "://")
	network := map[string]string{"tcp": "tcp", "shm": "unix"}[scheme]
	if network == "" {
		return nil
	}
	ctx, cancel := context.WithCancel(c.ctx)
	var crowd sync.WaitGroup
	var here atomic.Int64
	for i := range (silent + slow) * times {
		crowd.Go(func() { c.dawdle(ctx, network, rest, i >= silent*times, &here) })
	}
	for here.Load() < int64(silent*times/2) && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	var took samples
	failed, firstWhy := 0, ""
	for i := range honestDials * c.hostileRounds() / hostileRounds {
		from := time.Now()
		s, err := c.neighbour(fmt.Sprint("ann", i), "ann")
		if err != nil {
			failed++
			firstWhy = cmp.Or(firstWhy, err.Error())
			continue
		}
		took = append(took, float64(time.Since(from))/1e6)
		s.close()
	}
	cancel()
	crowd.Wait()
	c.r.Set(asFailed, failed)
	if failed > 0 {
		c.r.Set(asFailed+"_with", firstWhy)
	}
	c.r.Set(asP99, took.p(0.99))
	return c.ctx.Err()
}

// dawdle connects, says nothing or a byte now and then, and comes again when it is cut off.
func (c *client) dawdle(ctx context.Context, network, addr string, speaks bool, here *atomic.Int64) {
	var d net.Dialer
	for ctx.Err() == nil {
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil { // the listener's queue is full
			time.Sleep(10 * time.Millisecond)
			continue
		}
		here.Add(1)
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		if speaks {
			go func() {
				for one := binary.LittleEndian.AppendUint32(nil, 64)[:1]; ; time.Sleep(100 * time.Millisecond) {
					if _, err := conn.Write(one); err != nil {
						return
					}
				}
			}()
		}
		_, _ = conn.Read(make([]byte, 256))
		for err == nil { // what it hears before the end
			_, err = conn.Read(make([]byte, 256))
		}
		stop()
		conn.Close()
	}
}
