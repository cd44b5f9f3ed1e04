package bench

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/internal/share"
	"github.com/wherry-fabric/wherry/pool"
)

// greed is one connection of the principal that takes all there is of something, until its context ends.
type greed struct {
	*victim
	party  *party
	ctx    context.Context
	number int    // of the connection
	gain   *gains // of all its connections, of this kind
}

// gains is what there is to see of a bound: what was refused, and how many different functions ran.
type gains struct{ refused, ran atomic.Int64 }

// tried notes what became of an attempt.
func (g *greed) tried(err error) {
	if err != nil && g.ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, travel.ErrDeadline) {
		g.gain.refused.Add(1)
	}
}

// full reports whether a bound was met: something was refused, or waits at the server for its turn; of bindings, for which the oldest gives way, more functions
// have run than one principal may have there.
func (v *victim) full(what string, gain *gains, before uint64) (bool, error) {
	if gain.refused.Load() > 0 {
		return true, nil
	}
	if what == bindings {
		return gain.ran.Load() > int64(share.Of(travel.MaxSlots)), nil
	}
	if err := v.ask(v.eps[0], idPlaces, nil); err != nil {
		return false, err
	}
	now := v.last.Load()
	return now>>waitsBits > before>>waitsBits || now&(1<<waitsBits-1) > 0, nil
}

// bindings is one kind of place, addresses another, which functions over tcp do not take.
const (
	bindings  = "bindings"
	addresses = "addresses"
)

const (
	evesLoads    = 256
	evesFetches  = 256
	evesImages   = 640              // of all connections more than there are bindings for one principal
	announcedFor = 15 * time.Second // what is announced, and asked for in vain
	evesDerived  = 12               // each derives 60
	evesRegions  = 400
	sparse       = 1 << 40
	sparseEach   = 24
	sparseLent   = 1 << 50
)

// kind is a kind of places, and how all of them are taken.
type kind struct {
	what string
	take func(g *greed)
}

// greedy is what there are places of.
var greedy = []kind{
	{"places for calls", func(g *greed) { g.calls(0) }},
	{"memory of requests", func(g *greed) { g.calls(evesBytes) }},
	{"instances, and the queue of runs", (*greed).runs},
	{"places of loads", (*greed).loads},
	{addresses, (*greed).addresses},
	{"functions that it never sends", (*greed).fetches},
	{bindings, (*greed).bindings},
	{"machine code", (*greed).machine},
	{"derived functions", (*greed).derived},
	{"the pool", (*greed).regions},
}

// calls makes calls that do not end, with requests of so many bytes.
func (g *greed) calls(bytes int) {
	var all sync.WaitGroup
	for range evesCalls {
		all.Go(func() {
			_, err := long.Call(g.ctx, g.party.RPC(), g.party.at, make([]byte, bytes))
			g.tried(err)
		})
	}
	all.Wait()
}

// hold starts functions, and cancels what still runs in the end.
func (g *greed) hold(n int, img func(i int) (*image.Image, error)) {
	var futures []*inject.Future
	for i := range n {
		img, err := img(i)
		if err != nil {
			break
		}
		fut, err := g.party.start(g.ctx, img, nil, make([]byte, 64))
		if g.tried(err); err != nil {
			break
		}
		go func() {
			_, err := fut.Wait(g.ctx)
			g.tried(err)
		}()
		futures = append(futures, fut)
	}
	<-g.ctx.Done()
	for _, fut := range futures {
		fut.Cancel()
		<-fut.Done()
	}
}

func (g *greed) runs() {
	g.hold(evesCalls, func(int) (*image.Image, error) { return g.spec.image("endless") })
}

// begin begins a load, which is left.
func (g *greed) begin(i int, staging []byte) error {
	var id [16]byte
	rand.Read(id[:])
	body, err := json.Marshal(&control.BeginRequest{Load: control.LoadID(hex.EncodeToString(id[:])), Name: fmt.Sprintf("eve%d-%d", g.number, i), Staging: staging})
	if err == nil {
		_, err = g.party.RPC().Call(g.ctx, g.party.at, control.CallBegin, body)
	}
	return err
}

func (g *greed) loads() {
	for i := range evesLoads {
		g.tried(g.begin(i, nil))
	}
	<-g.ctx.Done()
}

// addresses has the server map segments that are all holes: over tcp it maps none.
func (g *greed) addresses() {
	for i := range sparseEach {
		s, err := g.party.Element().NewSegment(sparse, fabric.Writable)
		if err != nil {
			break
		}
		defer s.Close()
		if key, err := s.Key(fabric.RightsAll); err == nil {
			g.tried(g.begin(i, key.Append(nil)))
		}
	}
	<-g.ctx.Done()
}

// fetches announces functions that it does not send when it is asked for them.
func (g *greed) fetches() {
	tr, err := newTransport(g.spec)
	if err != nil {
		return
	}
	el, err := fabric.New(fabric.Config{Name: fmt.Sprint("mute", g.number), Transports: []fabric.Transport{tr}, Auth: named("eve")})
	if err != nil {
		return
	}
	defer el.Close()
	from := time.Now()
	for k := travel.Kind(0); k < travel.Kinds; k++ {
		id := fabric.FirstMessageID + fabric.FrameID(k)
		if k.Reserved() {
			id = fabric.FirstReservedID + fabric.FrameID(k)
		}
		el.Handle(id, func(fabric.Message) {
			if (k == travel.KindDone || k == travel.KindRefused) && time.Since(from) < announcedFor/2 {
				g.gain.refused.Add(1)
			}
		})
	}
	at, err := el.Dial(g.ctx, g.spec.Servers[0].Addr)
	if err != nil {
		return
	}
	for i := range evesFetches {
		if at.Send(g.ctx, fabric.FirstMessageID+fabric.FrameID(travel.KindInject), nil, announcement(uint32(i+1))) != nil {
			break
		}
	}
	<-g.ctx.Done()
}

// announcement is an INJECT message (docs/travel.md) of a function that nobody has.
func announcement(transfer uint32) []byte {
	const flagExt, seconds = 4, uint16(announcedFor/time.Second) << 11
	b := binary.LittleEndian.AppendUint16(nil, flagExt<<12|16)
	b = binary.LittleEndian.AppendUint16(b, seconds)
	b = append(b, 0, 0, byte(transfer), byte(transfer>>8), byte(transfer>>16))
	b = append(binary.LittleEndian.AppendUint32(b, transfer), 0)
	var id [32]byte
	rand.Read(id[:])
	b = binary.LittleEndian.AppendUint16(b, uint16(len(id)+3))
	return append(binary.LittleEndian.AppendUint16(append(b, 1), uint16(len(id))), id[:]...)
}

// bindings has ever more different functions run, over and over: the smallest there are, so that their machine code does not come to its bound before.
func (g *greed) bindings() {
	var ran [evesImages]bool
	for g.ctx.Err() == nil {
		for i := range evesImages {
			img, err := madeImage(fmt.Sprintf("eve%d-%d", g.number, i), module(0, body(true)))
			if err != nil {
				return
			}
			fut, err := g.party.start(g.ctx, img, nil, nil)
			if err != nil {
				break
			}
			if _, err := fut.Wait(g.ctx); err == nil && !ran[i] {
				ran[i] = true
				g.gain.ran.Add(1)
			}
		}
		time.Sleep(time.Millisecond)
	}
}

func (g *greed) machine() {
	g.hold(8, func(i int) (*image.Image, error) { return madeImage("machine", machineCode(8*g.number+i)) })
}

func (g *greed) derived() {
	img, err := g.spec.image("derives")
	if err != nil {
		return
	}
	g.hold(evesDerived, func(i int) (*image.Image, error) { return another(img, fmt.Sprintf("derives%d-%d", g.number, i)) })
}

// regions takes memory of the pool, in small pieces.
func (g *greed) regions() {
	name := g.spec.Servers[0].Name
	var all []*pool.Region
	for i := range evesRegions {
		size := uint64(4096)
		if i == 0 {
			size = victimPool / eves
		}
		r, err := g.party.Pool().CreateRegion(g.ctx, name, pool.Spec{Name: fmt.Sprintf("eve%d-%d", g.number, i), Size: size})
		if g.tried(err); err != nil {
			continue
		}
		all = append(all, r)
	}
	<-g.ctx.Done()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, r := range all {
		_ = r.Destroy(ctx)
	}
}
