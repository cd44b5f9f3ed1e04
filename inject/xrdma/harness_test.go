package xrdma

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	table "github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/schema"
)

// The functions are tested by themselves: a cluster is a handful of module
// instances with windows copied into their memory, and a queue of branches
// that is taken from in any order. So a test can ask for every order of
// arrival, which a real fabric would show once in a while.

const wasmPage = 64 << 10

// tb is what tests, benchmarks and rapid's checks have in common.
type tb interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// engine compiles functions once for all tests.
type engine struct {
	runtime  wazero.Runtime
	compiled map[string]wazero.CompiledModule
	current  *run
}

// run is what host calls act on.
type run struct {
	c     *cluster
	e     *element
	reply [][]byte
	ended bool // replied or forwarded
}

type element struct {
	index   int
	mod     api.Module
	entry   api.Function
	windows []window
	payload uint32 // address of the payload area
	scratch uint32 // address, 0 before it is ever asked for
	room    uint64 // bytes there
	granted uint64 // of them to this invocation
	view    uint32 // where parts of window 0 lie, 0 before any does
}

type window struct {
	addr uint32
	size uint64
}

// sharding says where rows are: a real shard table, so that functions are
// tested against the rules that elements go by.
type sharding struct{ *table.Table }

func sharded(s table.Sharding) sharding {
	if err := s.Validate(); err != nil {
		panic(err)
	}
	t := &table.Table{Name: "data", Version: 1, Kind: table.Raw, Sharding: s, Shards: make([]table.Shard, s.Elements)}
	t.FillRows()
	return sharding{t}
}

// blocks are ranges of equal length, but for the last ones.
func blocks(rows uint64, elements int) sharding {
	block := (rows + uint64(elements) - 1) / uint64(elements)
	bounds := make([]uint64, elements+1)
	for e := range bounds {
		bounds[e] = min(uint64(e)*block, rows)
	}
	return ranges(bounds...)
}

// ranges: element e holds rows bounds[e] to bounds[e+1]-1.
func ranges(bounds ...uint64) sharding {
	return sharded(table.Sharding{Kind: table.Block, Elements: uint32(len(bounds) - 1), Rows: bounds[len(bounds)-1], Bounds: bounds})
}

func spread(kind table.ShardKind, rows uint64, elements int) sharding {
	return sharded(table.Sharding{Kind: kind, Elements: uint32(elements), Rows: rows})
}

// kinds are shardings of each kind over some elements.
func kinds(rows uint64, elements int) map[string]sharding {
	keyed := blocks(rows, elements).Sharding
	keyed.Kind, keyed.Key = table.Hash, "id"
	return map[string]sharding{
		"block":  spread(table.Block, rows, elements),
		"cyclic": spread(table.Cyclic, rows, elements),
		"hash":   spread(table.Hash, rows, elements),
		"keyed":  sharded(keyed),
	}
}

type branch struct {
	element int
	payload []byte
}

type cluster struct {
	t        tb
	engine   *engine
	shards   sharding
	elements []*element
	queue    []branch
	full     func() bool // whether a queue is full just now
	clock    uint64
	pick     func(n int) int // which of n waiting branches runs next
	replies  [][]byte
	logs     []string
	branches int
	calls    map[string]int
	failed   error
	near     func(from, to int) bool // whose windows are mapped where; nil: nobody's
	part     uint64                  // what of a larger window 0 is shown at once; 0: all
}

func newEngine(t testing.TB) *engine {
	ctx := context.Background()
	e := &engine{runtime: wazero.NewRuntime(ctx), compiled: map[string]wazero.CompiledModule{}}
	t.Cleanup(func() { e.runtime.Close(ctx) })
	b := e.runtime.NewHostModuleBuilder(abi.Module)
	define := func(name string, f func(r *run, s []uint64)) {
		call, _ := abi.CallNamed(name, abi.Version)
		params, results := call.Types()
		b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, _ api.Module, s []uint64) {
			if e.current.c.calls != nil {
				e.current.c.calls[name]++
			}
			for i, t := range params {
				if t == 'i' { // the upper halves are whatever the register held
					s[i] = uint64(uint32(s[i]))
				}
			}
			f(e.current, s)
		}), types(params), types(results)).Export(name)
	}
	define("self", func(r *run, s []uint64) { s[0] = uint64(r.e.index) })
	define("elements", func(r *run, s []uint64) { s[0] = uint64(len(r.c.elements)) })
	define("owner", (*run).owner)
	define("row", (*run).row)
	define("shard_rows", (*run).shardRows)
	define("window", (*run).window)
	define("window_at", (*run).windowAt)
	define("get_near", (*run).getNear)
	define("scratch", (*run).scratch)
	define("reply", (*run).replyLast)
	define("reply_part", (*run).replyPart)
	define("forward", (*run).forward)
	define("fork", (*run).fork)
	define("now", func(r *run, s []uint64) { r.c.clock += 10000; s[0] = r.c.clock })
	define("remaining", func(_ *run, s []uint64) { s[0] = 1e9 })
	define("log", func(r *run, s []uint64) { r.c.logs = append(r.c.logs, string(r.bytes(s[0], s[1]))) })
	if _, err := b.Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	return e
}

func types(letters string) []api.ValueType {
	list := []api.ValueType{}
	for _, l := range letters {
		list = append(list, map[rune]api.ValueType{'i': api.ValueTypeI32, 'I': api.ValueTypeI64}[l])
	}
	return list
}

func (e *engine) compile(t tb, img *image.Image) wazero.CompiledModule {
	entry, ok := img.Entry(image.Wasm, "")
	if !ok {
		t.Fatalf("%s has no wasm entry", img.Name())
	}
	key := img.ID().String()
	if m := e.compiled[key]; m != nil {
		return m
	}
	m, err := e.runtime.CompileModule(context.Background(), entry.Code)
	if err != nil {
		t.Fatal(err)
	}
	e.compiled[key] = m
	return m
}

// cluster places windows[element][index] on elements; pick nil takes branches
// in the order they came.
func (e *engine) cluster(t tb, img *image.Image, shards sharding, windows [][][]byte, pick func(int) int) *cluster {
	c := &cluster{t: t, engine: e, shards: shards, pick: pick}
	if pick == nil {
		c.pick = func(int) int { return 0 }
	}
	code := e.compile(t, img)
	for i, list := range windows {
		mod, err := e.runtime.InstantiateModule(context.Background(), code, wazero.NewModuleConfig().WithName(""))
		if err != nil {
			t.Fatal(err)
		}
		el := &element{index: i, mod: mod, entry: mod.ExportedFunction(abi.Entry)}
		for _, w := range list {
			addr := el.grow(t, uint64(len(w)))
			mod.Memory().Write(addr, w)
			el.windows = append(el.windows, window{addr, uint64(len(w))})
		}
		el.payload = el.grow(t, wasmPage)
		c.elements = append(c.elements, el)
	}
	return c
}

func (c *cluster) close() {
	for _, e := range c.elements {
		e.mod.Close(context.Background())
	}
}

func (e *element) grow(t tb, n uint64) uint32 {
	pages, ok := e.mod.Memory().Grow(uint32(n/wasmPage + 1))
	if !ok {
		t.Fatalf("memory does not grow by %d bytes", n)
	}
	return pages * wasmPage
}

// invoke runs an invocation that starts on the given elements until no branch
// is left, and returns all parts of its result.
func (c *cluster) invoke(payload []byte, on ...int) ([][]byte, error) {
	c.replies, c.branches, c.failed = nil, 0, nil
	for _, e := range c.elements {
		e.granted = 0
	}
	for _, e := range on {
		c.queue = append(c.queue, branch{e, payload})
	}
	for len(c.queue) > 0 && c.failed == nil {
		i := c.pick(len(c.queue))
		b := c.queue[i]
		c.queue = slices.Delete(c.queue, i, i+1)
		c.failed = c.step(b)
	}
	c.queue = nil
	return c.replies, c.failed
}

func (c *cluster) step(b branch) error {
	e := c.elements[b.element]
	c.branches++
	if len(b.payload) > wasmPage {
		return fmt.Errorf("a payload of %d bytes", len(b.payload))
	}
	e.mod.Memory().Write(e.payload, b.payload)
	r := &run{c: c, e: e}
	c.engine.current = r
	stack := []uint64{uint64(e.payload), uint64(len(b.payload))}
	if err := e.entry.CallWithStack(context.Background(), stack); err != nil {
		return err
	}
	if st := abi.Status(stack[0]); st != abi.OK {
		return statusError(st)
	}
	c.replies = append(c.replies, r.reply...)
	return nil
}

type statusError abi.Status

func (s statusError) Error() string { return fmt.Sprintf("status %d", int32(s)) }

func (c *cluster) every() []int {
	all := make([]int, len(c.elements))
	for i := range all {
		all[i] = i
	}
	return all
}

func (r *run) bytes(ptr, n uint64) []byte {
	b, ok := r.e.mod.Memory().Read(uint32(ptr), uint32(n))
	if !ok {
		r.c.t.Errorf("a pointer leaves the memory: %#x + %d", ptr, n)
		return nil
	}
	return slices.Clone(b)
}

func status(st abi.Status) uint64 { return uint64(uint32(st)) }

func (r *run) owner(s []uint64) {
	e, local, ok := r.c.shards.Owner(s[1])
	if !ok {
		s[0] = status(abi.ErrArgument)
		return
	}
	r.e.mod.Memory().WriteUint64Le(uint32(s[2]), local)
	s[0] = uint64(e)
}

func (r *run) row(s []uint64) {
	row, ok := r.c.shards.Row(uint32(s[1]), s[2])
	if !ok {
		st := abi.ErrArgument
		row = uint64(int64(st))
	}
	s[0] = row
}

func (r *run) shardRows(s []uint64) {
	first, count, ranges, ok := r.c.shards.Range(uint32(s[1]))
	switch {
	case !ok:
		s[0] = status(abi.ErrArgument)
		return
	case !ranges:
		s[0] = status(abi.ErrUnsupported)
		return
	}
	mem := r.e.mod.Memory()
	mem.WriteUint64Le(uint32(s[2]), first)
	mem.WriteUint64Le(uint32(s[2])+8, count)
	s[0] = 0
}

func (r *run) window(s []uint64) {
	if s[0] >= uint64(len(r.e.windows)) || r.e.windows[s[0]].size == 0 {
		s[0] = status(abi.ErrNoWindow)
		return
	}
	w, mem, at := r.e.windows[s[0]], r.e.mod.Memory(), uint32(s[1])
	if r.slides(s[0]) {
		s[0] = status(abi.ErrLimit)
		return
	}
	mem.WriteUint32Le(at, w.addr)
	mem.WriteUint32Le(at+4, 0)
	mem.WriteUint64Le(at+8, w.size)
	s[0] = 0
}

// slides reports whether a window is shown in parts.
func (r *run) slides(window uint64) bool {
	return window == 0 && r.c.part > 0 && r.e.windows[0].size > r.c.part
}

func (r *run) windowAt(s []uint64) {
	if s[0] >= uint64(len(r.e.windows)) || r.e.windows[s[0]].size == 0 {
		s[0] = status(abi.ErrNoWindow)
		return
	}
	w, mem, at := r.e.windows[s[0]], r.e.mod.Memory(), uint32(s[2])
	if s[1] >= w.size {
		s[0] = status(abi.ErrArgument)
		return
	}
	addr, first, shown := w.addr, uint64(0), w.size
	if r.slides(s[0]) { // every part lies at the same place, and takes away what was there
		if r.e.view == 0 {
			r.e.view = r.e.grow(r.c.t, r.c.part)
		}
		first = s[1] &^ 63
		shown = min(r.c.part, w.size-first)
		b, _ := mem.Read(w.addr+uint32(first), uint32(shown))
		mem.Write(r.e.view, append(slices.Clone(b), bytes.Repeat([]byte{0xee}, int(r.c.part-shown))...))
		addr = r.e.view
	}
	mem.WriteUint32Le(at, addr)
	mem.WriteUint32Le(at+4, 0)
	for i, v := range []uint64{first, shown, w.size} {
		mem.WriteUint64Le(at+8+8*uint32(i), v)
	}
	s[0] = 0
}

func (r *run) getNear(s []uint64) {
	to := int(s[0])
	switch {
	case to >= len(r.c.elements):
		s[0] = status(abi.ErrArgument)
	case to != r.e.index && (r.c.near == nil || !r.c.near(r.e.index, to)):
		s[0] = status(abi.ErrFar)
	case s[1] >= uint64(len(r.c.elements[to].windows)) || r.c.elements[to].windows[s[1]].size == 0:
		s[0] = status(abi.ErrNoWindow)
	case s[2]+s[4] > r.c.elements[to].windows[s[1]].size:
		s[0] = status(abi.ErrArgument)
	default:
		from := r.c.elements[to]
		data, _ := from.mod.Memory().Read(from.windows[s[1]].addr+uint32(s[2]), uint32(s[4]))
		r.e.mod.Memory().Write(uint32(s[3]), data)
		s[0] = 0
	}
}

func (r *run) scratch(s []uint64) {
	if s[0] > 1<<30 {
		s[0] = 0
		return
	}
	if r.e.granted != 0 && s[0] > r.e.granted {
		r.c.t.Errorf("scratch grows from %d to %d", r.e.granted, s[0])
		s[0] = 0
		return
	}
	if r.e.granted == 0 {
		if s[0] > r.e.room {
			r.e.scratch, r.e.room = r.e.grow(r.c.t, s[0]), s[0]
		}
		mem, _ := r.e.mod.Memory().Read(r.e.scratch, uint32(s[0]))
		clear(mem)
		r.e.granted = s[0]
	}
	s[0] = uint64(r.e.scratch)
}

func (r *run) replyPart(s []uint64) {
	if r.ended {
		s[0] = status(abi.ErrDone)
		return
	}
	if s[1] > 32<<10 {
		r.c.t.Errorf("a part of %d bytes", s[1])
	}
	r.reply = append(r.reply, r.bytes(s[0], s[1]))
	s[0] = 0
}

func (r *run) replyLast(s []uint64) {
	r.replyPart(s)
	r.ended = true
}

func (r *run) forward(s []uint64) {
	if r.ended {
		s[0] = status(abi.ErrDone)
		return
	}
	r.send(s)
	r.ended = s[0] == 0
}

func (r *run) fork(s []uint64) {
	if r.c.full != nil && r.c.full() {
		s[0] = status(abi.ErrBackpressure)
		return
	}
	r.send(s)
}

func (r *run) send(s []uint64) {
	switch {
	case r.ended:
		s[0] = status(abi.ErrDone)
	case s[0] != 0 || int32(s[1]) < 0 || int(s[1]) >= len(r.c.elements):
		s[0] = status(abi.ErrArgument)
	default:
		r.c.queue = append(r.c.queue, branch{int(s[1]), r.bytes(s[2], s[3])})
		s[0] = 0
	}
}

// rowsOf decodes all parts and returns the cells as text.
func rowsOf(t tb, img *image.Image, parts [][]byte) [][]string {
	t.Helper()
	m := img.Call()
	var out [][]string
	for _, p := range parts {
		rows, err := m.DecodeResult(p)
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows.Len() {
			out = append(out, rows.Strings(i))
		}
	}
	return out
}

// mergedRows is rowsOf after merging, as a client would.
func mergedRows(t tb, img *image.Image, parts [][]byte) [][]string {
	t.Helper()
	m := img.Call()
	var decoded []schema.Rows
	for _, p := range parts {
		rows, err := m.DecodeResult(p)
		if err != nil {
			t.Fatal(err)
		}
		decoded = append(decoded, rows)
	}
	rows, err := m.Result.Merge(decoded...)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]string
	for i := range rows.Len() {
		out = append(out, rows.Strings(i))
	}
	return out
}

func args(t tb, img *image.Image, dataset *schema.Schema, values map[string]string) []byte {
	t.Helper()
	b, err := img.Manifest().Params.EncodeArgs(values, dataset)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// anyArgs is args of a function that is not kept to what its manifest allows: it must defend itself.
func anyArgs(t tb, img *image.Image, dataset *schema.Schema, values map[string]string) []byte {
	t.Helper()
	params := &schema.Schema{Fields: slices.Clone(img.Manifest().Params.Fields)}
	for i := range params.Fields {
		params.Fields[i].OneOf = nil
	}
	b, err := params.EncodeArgs(values, dataset)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func u64s(v ...uint64) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b
}

func u32s(v ...uint32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }
