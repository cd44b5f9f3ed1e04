package bench

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/rpc"
)

// One principal takes places of every kind in turn, by as many connections as it likes, while another makes honest calls.

const (
	honestCalls = 1000             // with the usual number of rounds
	honestTime  = 10 * time.Second // a call's deadline
	eves        = 6                // connections of the principal that takes all
	evesCalls   = 64               // of each
	evesBytes   = 4 << 20          // of large requests
	honestBytes = 256 << 10        // more than travels in a message
	silent      = 400              // diallers that say nothing, and come again
	slow        = 200              // … that say a byte now and then
	crowded     = 3                // times as many are more than there are places for such
	honestDials = 40               // with the usual number of rounds
)

// named is an Auth of principals whose names are their tokens.
type named string

func (n named) Self() (string, []byte) { return string(n), []byte("the secret of " + n) }
func (n named) Lookup(name string) ([]byte, fabric.Principal, bool) {
	return []byte("the secret of " + name), fabric.Principal{Name: name, Caps: uint32(cluster.CapsAll &^ cluster.CapMember)}, true
}
func (n named) Anonymous(fabric.PeerCred, bool) (fabric.Principal, bool) {
	return fabric.Principal{}, false
}

// long is a call whose handler ends with it.
var long = rpc.Define("bench.long", rpc.Bytes{}, rpc.Bytes{})

func (s *station) serveLong() error {
	return long.Serve(s.rpc, func(ctx context.Context, _ *rpc.Call, _ []byte) ([]byte, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}, rpc.Options{})
}

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

// neighbours measures what becomes of honest calls beside a principal that takes all it can.
func (c *client) neighbours() error {
	var crowd []*station
	defer func() {
		for _, s := range crowd {
			s.close()
		}
	}()
	for i := range eves {
		s, err := c.neighbour(fmt.Sprint("eve", i), "eve")
		if err != nil {
			return err
		}
		crowd = append(crowd, s)
	}
	kinds := []struct {
		what string
		take func(ctx context.Context, s *station) error
	}{
		{"places for calls", c.takeCalls(0)},
		{"memory of requests", c.takeCalls(evesBytes)},
		{"instances", c.takeRuns},
	}
	failed := 0
	var firstWhy string
	for i, k := range kinds {
		c.say("one principal takes "+k.what, float64(i)/float64(len(kinds)+1))
		ctx, cancel := context.WithTimeout(c.ctx, time.Minute)
		var took sync.WaitGroup
		for _, s := range crowd {
			took.Go(func() { _ = k.take(ctx, s) }) // what is refused is what is wanted
		}
		time.Sleep(300 * time.Millisecond)
		for n := range honestCalls * c.hostileRounds() / hostileRounds / len(kinds) {
			if err := c.honest(n); err != nil {
				if failed++; firstWhy == "" {
					firstWhy = fmt.Sprintf("%s: %v", k.what, err)
				}
			}
		}
		cancel()
		took.Wait()
	}
	c.r.Set("others_failed", failed)
	if firstWhy != "" {
		c.r.Set("others_failed_with", firstWhy)
	}
	if err := c.memory(crowd[0]); err != nil {
		return err
	}
	if err := c.diallers(1, "dials_failed", "dial_ms_p99"); err != nil {
		return err
	}
	if !strings.HasPrefix(c.spec.Servers[0].Addr, "tcp:") { // of shm's 256 places 600 leave none
		return nil
	}
	return c.diallers(crowded, "dials_full_failed", "dial_full_ms_p99")
}

// memory measures what the server takes beside what functions are charged, while they fill their heaps and recur as deep as they can.
func (c *client) memory(s *station) error {
	c.say("memory", 0.7)
	look := func() (charged, has float64, err error) {
		err = c.ask(c.eps[0], idMemory, nil)
		state := c.last.Load()
		return float64(state >> 32), float64(state & (1<<32 - 1)), err
	}
	_, before, err := look()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.ctx, patience)
	defer cancel()
	var running []*inject.Future
	names := []string{"deep", "deep", "deep", "deep"}
	for i := range fillers * fillEach {
		names = append(names, fmt.Sprint("fill", i%fillers))
	}
	for _, name := range names {
		img, err := c.spec.image(name)
		if err != nil {
			return err
		}
		f, err := s.rt.PrepareAs(img, nil, c.spec.wish())
		if err != nil {
			return err
		}
		defer f.Close()
		fut, err := f.Start(ctx, []inject.Root{{To: s.eps[0], Payload: make([]byte, 64)}}, inject.Options{})
		if err != nil {
			return err
		}
		running = append(running, fut)
	}
	most, over := 0.0, 0.0
	for end := time.Now().Add(time.Duration(c.hostileRounds()) * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		charged, has, err := look()
		if err != nil {
			return err
		}
		most = max(most, has)
		if charged >= 1 {
			over = max(over, (has-before)/charged)
		}
		if slices.IndexFunc(running, func(fut *inject.Future) bool { return !ended(fut) }) < 0 {
			break
		}
	}
	for _, fut := range running {
		fut.Cancel()
		<-fut.Done()
	}
	c.r.Set("rss_mib_max", most)
	c.r.Set("rss_over_charged", over)
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

// honest makes a call, or has a function run.
func (c *client) honest(n int) error {
	ctx, cancel := context.WithTimeout(c.ctx, honestTime)
	defer cancel()
	if n%2 == 0 {
		body := []byte("still there")
		if n%4 == 0 { // which takes memory of requests
			body = make([]byte, honestBytes)
		}
		_, err := echo.Call(ctx, c.station.rpc, c.eps[0], body)
		return err
	}
	v := &victim{client: c}
	return v.servesIn(ctx)
}

// takeCalls makes calls that do not end, with requests of so many bytes.
func (c *client) takeCalls(bytes int) func(ctx context.Context, s *station) error {
	return func(ctx context.Context, s *station) error {
		var all sync.WaitGroup
		for range evesCalls {
			all.Go(func() { _, _ = long.Call(ctx, s.rpc, s.eps[0], make([]byte, bytes)) })
		}
		all.Wait()
		return nil
	}
}

// takeRuns has functions run that do not end.
func (c *client) takeRuns(ctx context.Context, s *station) error {
	img, err := c.spec.image("spin")
	if err != nil {
		return err
	}
	f, err := s.rt.PrepareAs(img, nil, c.spec.wish())
	if err != nil {
		return err
	}
	defer f.Close()
	var futures []*inject.Future
	for range evesCalls {
		fut, err := f.Start(ctx, []inject.Root{{To: s.eps[0], Payload: make([]byte, 4096)}}, inject.Options{})
		if err != nil {
			break
		}
		futures = append(futures, fut)
	}
	<-ctx.Done()
	for _, fut := range futures {
		fut.Cancel()
		<-fut.Done()
	}
	return nil
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
