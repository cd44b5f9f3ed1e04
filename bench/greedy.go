package bench

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/pool"
)

// greed is one connection of the principal that takes all there is of something, until its context ends.
type greed struct {
	*victim
	party  *party
	ctx    context.Context
	number int // of the connection
}

const (
	evesLoads   = 256
	evesFetches = 256
	evesImages  = 200
	evesRegions = 400
	sparse      = 1 << 40
	sparseEach  = 24
	sparseLent  = 1 << 50
)

// greedy is what there are places of.
var greedy = []struct {
	what string
	take func(g *greed)
}{
	{"places for calls", func(g *greed) { g.calls(0) }},
	{"memory of requests", func(g *greed) { g.calls(evesBytes) }},
	{"instances, and the queue of runs", (*greed).runs},
	{"places of loads", (*greed).loads},
	{"addresses", (*greed).addresses},
	{"functions that it never sends", (*greed).fetches},
	{"bindings", (*greed).bindings},
	{"machine code", (*greed).machine},
	{"derived functions", (*greed).derived},
	{"the pool", (*greed).regions},
}

// calls makes calls that do not end, with requests of so many bytes.
func (g *greed) calls(bytes int) {
	var all sync.WaitGroup
	for range evesCalls {
		all.Go(func() { _, _ = long.Call(g.ctx, g.party.RPC(), g.party.at, make([]byte, bytes)) })
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
		if err != nil {
			break
		}
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
		_ = g.begin(i, nil)
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
			_ = g.begin(i, key.Append(nil))
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
	for k := travel.Kind(0); k < travel.Kinds; k++ {
		id := fabric.FirstMessageID + fabric.FrameID(k)
		if k.Reserved() {
			id = fabric.FirstReservedID + fabric.FrameID(k)
		}
		el.Handle(id, func(fabric.Message) {})
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
	const flagExt, seconds = 4, 15 << 11
	b := binary.LittleEndian.AppendUint16(nil, flagExt<<12|16)
	b = binary.LittleEndian.AppendUint16(b, seconds)
	b = append(b, 0, 0, byte(transfer), byte(transfer>>8), byte(transfer>>16))
	b = append(binary.LittleEndian.AppendUint32(b, transfer), 0)
	var id [32]byte
	rand.Read(id[:])
	b = binary.LittleEndian.AppendUint16(b, uint16(len(id)+3))
	return append(binary.LittleEndian.AppendUint16(append(b, 1), uint16(len(id))), id[:]...)
}

// bindings has ever more different functions run, over and over.
func (g *greed) bindings() {
	for g.ctx.Err() == nil {
		for i := range evesImages {
			img, err := another(xrdma.Echo(), fmt.Sprintf("eve%d-%d", g.number, i))
			if err != nil {
				return
			}
			fut, err := g.party.start(g.ctx, img, nil, nil)
			if err != nil {
				break
			}
			<-fut.Done()
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
	g.hold(8, func(i int) (*image.Image, error) { return another(img, fmt.Sprintf("derives%d-%d", g.number, i)) })
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
		if err != nil {
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
