package bench

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/llvm"
	"github.com/wherry-fabric/wherry/inject/native"
	"github.com/wherry-fabric/wherry/rpc"
)

// Message ids of the benchmarks' own handlers.
const (
	idPing   fabric.FrameID = 200 // answered with idPong
	idChase  fabric.FrameID = 201 // the deployed chase
	idRing   fabric.FrameID = 202 // the token of a ring
	idPong   fabric.FrameID = 3000
	idChased fabric.FrameID = 3001 // the chase's end, to the element that began it
	idAllocs fabric.FrameID = 3002 // asks for the number of allocations so far
	idAlloc  fabric.FrameID = 3003 // the answer

	idObjects fabric.FrameID = 205 // asks for the numbers of objects made and found; answered with idAlloc
	idState   fabric.FrameID = 206 // asks what runs, and what the longest load took; answered with idAlloc
	idPlaces  fabric.FrameID = 208 // asks what was refused so far or waits for its turn; answered with idAlloc
	idCPU     fabric.FrameID = 209 // asks for the processor time that the process has used, ns; answered with idAlloc
	idNear    fabric.FrameID = 210 // the keys of all shards, for a deployed chase that reads what is mapped; answered with idPong
	idMemory  fabric.FrameID = 207 // asks what memory the process has of its own, in MiB; answered with idAlloc

	idFloor      fabric.FrameID = 203 // where the bare connection is; answered with idPong
	idFloorTrips fabric.FrameID = 204 // so many round trips are made there next
)

// importTime is how long a server takes at most to have another's shard mapped.
const importTime = 10 * time.Second

// station is a benchmark's element with its runtime.
type station struct {
	el  *fabric.Element
	rt  *inject.Runtime
	rpc *rpc.Peer
	// Of native code; nil: none runs.
	native   *native.Engine
	compiler *llvm.Compiler

	eps     []*fabric.Endpoint // by server index
	byID    map[fabric.Incarnation]*fabric.Endpoint
	near    atomic.Pointer[[]*fabric.Remote] // by server index, those whose shards are mapped here; nil until idNear
	closers []func()                         // before the element's
	endNode func()                           // unless nil, all this is a node's
	longs   atomic.Int64                     // handlers of bench.long that run
}

func newStation(spec *role, engine bool) (*station, error) {
	if spec.Kind == "hostile" { // where the principal counts
		return newStationOf(spec, engine, named(spec.Name))
	}
	return newStationOf(spec, engine, everybody{})
}

// newStationOf makes a station that shows itself and admits others by auth.
func newStationOf(spec *role, engine bool, auth fabric.Auth) (*station, error) {
	tr, err := newTransport(spec)
	if err != nil {
		return nil, err
	}
	s := &station{}
	s.el, err = fabric.New(fabric.Config{Name: spec.Name, Transports: []fabric.Transport{tr}, Policy: spec.Policy, Auth: auth})
	if err != nil {
		return nil, err
	}
	cfg := inject.Config{}
	if engine {
		if cfg, err = s.engines(spec); err != nil {
			return nil, err
		}
	}
	if s.rt, err = inject.NewRuntime(s.el, cfg); err != nil {
		return nil, err
	}
	if s.rpc, err = rpc.New(s.el, rpc.Config{}); err != nil {
		return nil, err
	}
	return s, nil
}

// dialAll connects to servers. When it returns they have this element among their endpoints,
// too: on a busy machine they may come to it later than a message that goes another way.
func (s *station) dialAll(ctx context.Context, servers []serverInfo) error {
	for _, info := range servers {
		ep, err := s.el.Dial(ctx, info.Addr)
		if err != nil {
			return err
		}
		if err := ep.Flush(ctx); err != nil {
			return err
		}
		s.eps = append(s.eps, ep)
	}
	return nil
}

func (s *station) close() {
	if s.endNode != nil {
		s.endNode()
		return
	}
	s.rpc.Close()
	for _, end := range s.closers {
		end()
	}
	s.el.Close()
	s.rt.Close()
	if s.native != nil {
		s.native.Close()
		s.compiler.Close()
	}
}

// permutation is one random cycle over all rows (Sattolo's algorithm): every
// server makes the same one and keeps its part.
func permutation(rows int, seed uint64) []uint64 {
	next := make([]uint64, rows)
	for i := range next {
		next[i] = uint64(i)
	}
	r := rand.New(rand.NewPCG(seed, 0x77686572))
	for i := rows - 1; i > 0; i-- {
		j := r.IntN(i)
		next[i], next[j] = next[j], next[i]
	}
	return next
}

func sharding(spec *role) cluster.Sharding {
	return cluster.Sharding{Kind: cluster.Block, Elements: uint32(spec.Count), Rows: uint64(spec.Rows)}
}

// runServer serves until standard input ends.
func runServer(ctx context.Context, spec *role, in *json.Decoder, w io.Writer, graph Load) error {
	info, s, err := startServer(ctx, spec)
	if err == nil && spec.Kind == "rounds" && graph != nil {
		var g *Graph
		if g, err = graph(); err == nil {
			info.Graphs, err = s.lendShards(spec, g)
		}
	}
	if err != nil {
		info.Error = err.Error()
	}
	if err := json.NewEncoder(w).Encode(info); err != nil || info.Error != "" {
		return err
	}
	var rest json.RawMessage
	for in.Decode(&rest) == nil { // nothing is said any more: this waits for the end
	}
	s.close()
	return nil
}

func startServer(ctx context.Context, spec *role) (info serverInfo, s *station, err error) {
	if spec.Kind == "hostile" {
		return startNode(spec)
	}
	if s, err = newStation(spec, true); err != nil {
		return info, nil, err
	}
	shards := sharding(spec)
	first, count := shards.ElementRows(uint32(spec.Index))
	seg, err := s.el.NewSegment(max(count*8, verbSpan, uint64(spec.Bytes)), fabric.Writable)
	if err != nil {
		return info, nil, err
	}
	next := permutation(spec.Rows, spec.Seed)
	for i := range count {
		binary.LittleEndian.PutUint64(seg.Bytes()[i*8:], next[first+i])
	}
	s.handle(spec, seg, first, count)
	s.handleRing(spec)
	s.handleFloor()
	s.handleObjects()
	if err := echo.Serve(s.rpc, func(_ context.Context, _ *rpc.Call, req []byte) ([]byte, error) { return req, nil }, rpc.Options{Inline: spec.Inline}); err != nil {
		return info, nil, err
	}
	if err := s.serveBulk(spec); err != nil {
		return info, nil, err
	}
	if spec.Kind == "pool" {
		if err := s.servePool(); err != nil {
			return info, nil, err
		}
	}
	if spec.Kind == "dev" {
		if err := s.serveDrive(spec.Disk); err != nil {
			return info, nil, err
		}
	}
	if spec.Kind == "query" {
		if err := s.serveColumns(spec, &info); err != nil {
			return info, nil, err
		}
	}
	key, err := seg.Key(fabric.RightsAll)
	if err != nil {
		return info, nil, err
	}
	var keys [][]byte
	if spec.Kind == "crowd" {
		if keys, err = s.lendGraph(); err != nil {
			return info, nil, err
		}
	}
	addr, err := s.el.Listen(spec.Listen)
	if err != nil {
		return info, nil, err
	}
	others := spec.Servers
	if spec.Kind == "ring" { // it needs no other than the one before it: of dozens that spin, each takes its time
		others = others[max(len(others)-1, 0):]
	}
	if err := s.dialAll(ctx, others); err != nil {
		return info, nil, err
	}
	info.Name, info.Addr, info.Incarnation, info.Key, info.Size, info.Keys = spec.Name, addr, s.el.Incarnation(), key.Append(nil), count*8, keys
	return info, s, nil
}

// handle registers the deployed handlers: an echo, and the chase that
// injection is measured against.
func (s *station) handle(spec *role, seg *fabric.Segment, first, count uint64) {
	s.el.Handle(idPing, func(m fabric.Message) { m.From.Post(idPong, nil, m.Body) })
	s.el.Handle(idAllocs, func(m fabric.Message) { m.From.Post(idAlloc, binary.LittleEndian.AppendUint64(nil, mallocs()), nil) })
	table := seg.Bytes()
	owner := ownerOf(spec)
	msg, word := make([]byte, 0, 64), make([]byte, 8)
	var cache []*fabric.Endpoint
	begins := beginsOf(spec)
	s.el.Handle(idNear, s.lookNear)
	s.el.Handle(idChase, func(m fabric.Message) {
		// {row, left, the client's incarnation}
		row, left := binary.LittleEndian.Uint64(m.Body), binary.LittleEndian.Uint64(m.Body[8:])
		client := binary.LittleEndian.Uint64(m.Body[16:])
		for ; left > 0; left-- {
			if row-first < count {
				row = binary.LittleEndian.Uint64(table[(row-first)*8:])
				continue
			}
			to := owner(row)
			near := s.near.Load()
			if near == nil || (*near)[to] == nil || (*near)[to].Get(context.Background(), word, (row-begins[to])*8) != nil {
				break
			}
			row = binary.LittleEndian.Uint64(word)
		}
		if cache == nil {
			cache = s.route(spec)
		}
		msg = binary.LittleEndian.AppendUint64(msg[:0], row)
		msg = binary.LittleEndian.AppendUint64(msg, left)
		msg = binary.LittleEndian.AppendUint64(msg, client)
		if left == 0 {
			s.incarnation(fabric.Incarnation(client)).Post(idChased, nil, msg[:8])
			return
		}
		cache[owner(row)].Post(idChase, nil, msg)
	})
}

// lookNear has the shards of servers on this machine mapped.
func (s *station) lookNear(m fabric.Message) {
	keys := append([]byte(nil), m.Body...)
	from := m.From
	go func() {
		var near []*fabric.Remote
		for at := 0; at+fabric.KeyBytes <= len(keys); at += fabric.KeyBytes {
			near = append(near, s.mapped(keys[at:at+fabric.KeyBytes]))
		}
		s.near.Store(&near)
		ctx, cancel := context.WithTimeout(context.Background(), importTime)
		defer cancel()
		_ = from.Send(ctx, idPong, nil, nil) // an error: the client is gone
	}()
}

// mapped is the memory of a key if it is another server's and mapped here.
func (s *station) mapped(key []byte) *fabric.Remote {
	k, err := fabric.DecodeKey(key)
	if err != nil {
		return nil
	}
	for _, ep := range s.el.Endpoints() {
		if ep.Incarnation() != k.Owner || !ep.Shared() {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), importTime)
		defer cancel()
		if r, err := ep.Import(ctx, k); err == nil && r.Mapped() {
			return r
		}
	}
	return nil
}

// beginsOf is each server's first row.
func beginsOf(spec *role) (first []uint64) {
	shards := sharding(spec)
	for i := range uint32(spec.Count) {
		begin, _ := shards.ElementRows(i)
		first = append(first, begin)
	}
	return first
}

// ownerOf is Sharding.Owner for blocks, as somebody would write it who has no other kind: blocks differ by one row at most.
func ownerOf(spec *role) func(row uint64) int {
	shards := sharding(spec)
	var ends []uint64
	for i := range uint32(spec.Count) {
		first, count := shards.ElementRows(i)
		ends = append(ends, first+count)
	}
	block := (uint64(spec.Rows) + uint64(spec.Count) - 1) / uint64(spec.Count)
	return func(row uint64) int {
		i := int(row / block)
		for row >= ends[i] {
			i++
		}
		return i
	}
}

// route is the endpoint to each server, by index; nil for this one.
func (s *station) route(spec *role) []*fabric.Endpoint {
	to := make([]*fabric.Endpoint, spec.Count)
	for _, ep := range s.el.Endpoints() {
		var i int
		if _, err := fmt.Sscanf(ep.Name(), "server%d", &i); err == nil && i < len(to) {
			to[i] = ep
		}
	}
	return to
}

// incarnation finds an endpoint; called by handlers only.
func (s *station) incarnation(i fabric.Incarnation) *fabric.Endpoint {
	if ep := s.byID[i]; ep != nil {
		return ep
	}
	s.byID = map[fabric.Incarnation]*fabric.Endpoint{}
	for _, ep := range s.el.Endpoints() {
		s.byID[ep.Incarnation()] = ep
	}
	return s.byID[i]
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
