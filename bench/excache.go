package bench

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/child"
	"github.com/wherry-fabric/wherry/internal/sockdir"
	"github.com/wherry-fabric/wherry/pool/excache"
)

const (
	// cachedBytes of remote memory are walked through, cachedLocal of them are local: a quarter.
	cachedBytes = 64 << 20
	cachedLocal = cachedBytes / 4
	// missLeast is shorter than any fault and longer than any access without one.
	missLeast = time.Microsecond
	// excacheRounds is how many pages are touched at random.
	excacheRounds = 20_000
)

// segmentStore is a store of one segment of the server.
type segmentStore struct {
	mem  *fabric.Remote
	size uint64
	mu   sync.Mutex
	ops  [excache.Transfers]fabric.Op
}

func (s *segmentStore) Take(_ context.Context, r int) error {
	if uint64(r+1)*excache.RoomBytes > s.size {
		return excache.ErrFull
	}
	return nil
}

func (s *segmentStore) Release(int) {}

func (s *segmentStore) Silent() {}

func (s *segmentStore) Discard(context.Context, int, []excache.Range) error { return nil }

// Clone is not the segment's to do for itself, and the program that is measured does not fork.
func (s *segmentStore) Clone(context.Context, int, int, []excache.Range) error {
	return excache.ErrFull
}

func (s *segmentStore) Mapped(int) bool { return s.mem.Mapped() }

func (s *segmentStore) Access(off uint64, n int, fn func([]byte)) error {
	return s.mem.Access(fabric.RightRead|fabric.RightWrite, off, uint64(n), fn)
}

func (s *segmentStore) StartGet(i int, p []byte, off uint64) { s.keep(i, s.mem.StartGet(p, off)) }

func (s *segmentStore) StartPut(i int, p []byte, off uint64) { s.keep(i, s.mem.StartPut(p, off)) }

func (s *segmentStore) keep(i int, op fabric.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops[i] = op
}

func (s *segmentStore) Done(set uint64) (done uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; set != 0; set &= set - 1 {
		if s.ops[bits.TrailingZeros64(set)].Poll() {
			done |= set & -set
		}
	}
	return done
}

func (s *segmentStore) End(i int) error {
	s.mu.Lock()
	op := s.ops[i]
	s.mu.Unlock()
	if op.Poll() {
		return op.Wait(context.Background())
	}
	op.Forget()
	return context.DeadlineExceeded
}

func (s *segmentStore) Wait(ctx context.Context, cond func() bool) error {
	return s.mem.Endpoint().Element().WaitFor(ctx, cond)
}

func (s *segmentStore) Wake() { s.mem.Endpoint().Element().Wake() }

// faulted is what the program that faults says.
type faulted struct {
	Error string
	faultTimes
	Floor *faultTimes // nil: there is none
	Aside string      // why
}

// faultTimes are what faults took.
type faultTimes struct {
	Misses [2]samples // ns: at random, and of 64 KiB
	Read   float64    // bytes a second, of all bytes in order
}

// excache is a page cache in this process for another one, which touches more than is local.
func (c *client) excache() error {
	mem, err := c.remote()
	if err != nil {
		return err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(excache.LeastProcessors)) // as wherry run has it; this process is bound to one
	var lost atomic.Pointer[error]
	cache, err := excache.New(excache.Config{LocalBytes: cachedLocal, Store: &segmentStore{mem: mem, size: mem.Size()}, Told: func(err error) { lost.Store(&err) }})
	if err != nil {
		return err
	}
	defer cache.Close()
	dir, err := sockdir.Make("wherry-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	if err != nil {
		return err
	}
	var served sync.WaitGroup
	served.Go(func() {
		if conn, err := l.AcceptUnix(); err == nil {
			cache.Serve(conn)
		}
	})
	defer served.Wait()
	defer l.Close()
	c.say("misses of a page cache", 0)
	p, turns, err := c.program(l.Addr().String())
	if err != nil {
		return err
	}
	defer p.End()
	defer turns.Close()
	var f faulted
	if err := hear(p, &f); err != nil { // it has joined
		return err
	}
	gets, page := make(samples, 0, faultTurns*getsATurn), make([]byte, excache.PageBytes)
	allocs := mallocs()
	if f.Error == "" {
		if gets, err = c.pageGets(mem, gets, page, turns); err == nil {
			err = hear(p, &f) // it has touched all
		}
	}
	allocs = mallocs() - allocs
	if err == nil && f.Error == "" {
		err = hear(p, &f) // what it measured: many numbers, which take memory to read
	}
	if err == nil && f.Error != "" {
		err = fmt.Errorf("bench: the program that faults: %s", f.Error)
	}
	if why := lost.Load(); why != nil { // whatever the program died of, it is that
		return *why
	}
	if err != nil {
		return err
	}
	c.faultFields(&f, gets, cache.Stats(), allocs)
	return nil
}

// faultFields sets what was measured.
func (c *client) faultFields(f *faulted, gets samples, s excache.Stats, allocs uint64) {
	c.r.Set("miss_4k_us_p50", f.Misses[0].p(0.5)/1e3)
	c.r.Set("miss_4k_us_p90", f.Misses[0].p(0.9)/1e3)
	c.r.Set("miss_64k_us_p50", f.Misses[1].p(0.5)/1e3)
	c.r.Set("seq_gbytes_per_s", f.Read/1e9)
	c.overFloor(f, gets)
	c.r.Set("get_4k_us_p50", gets.p(0.5)/1e3)
	c.r.Set("misses_over_fifo", missesOverFIFO(c.spec.Seed))
	c.r.Set("allocs_per_miss", allocsPerOp([]uint64{0}, []uint64{allocs}, int(s.Faults)))
	c.r.Set("faults", s.Faults)
	c.r.Set("remote_bytes", cachedBytes)
	c.r.Set("local_bytes", cachedLocal)
}

// getsATurn is how many Gets of a page are timed between the program's misses.
const getsATurn = 400

// pageGets times Gets of a page, which a miss is held against, each time that the program says that it is their turn. It allocates nothing, and fills s.
func (c *client) pageGets(mem *fabric.Remote, s samples, page []byte, turns *os.File) (samples, error) {
	for range faultTurns {
		if _, err := turns.Read(page[:1]); err != nil {
			return s, nil // the program has ended, and says why
		}
		for range getsATurn {
			at := uint64(c.rand.IntN(cachedBytes/excache.PageBytes)) * excache.PageBytes
			start := time.Now()
			if err := mem.Get(c.ctx, page, at); err != nil {
				return s, err
			}
			s = append(s, float64(time.Since(start)))
		}
		_, _ = turns.Write(page[:1]) // the same
	}
	return s, nil
}

// program starts the process whose memory it is. The file is where it says that it is others' turn, and hears that it is its own.
func (c *client) program(socket string) (*child.Process, *os.File, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), "turns"), os.NewFile(uintptr(ends[1]), "turns")
	defer theirs.Close()
	cmd := exec.CommandContext(c.ctx, self, os.Args[1:]...)
	cmd.ExtraFiles = []*os.File{theirs}
	p, err := child.Start(cmd) // where this process may run
	if err != nil {
		ours.Close()
		return nil, nil, err
	}
	rounds := c.spec.Rounds
	if rounds == 0 {
		rounds = excacheRounds
	}
	_ = p.Tell(role{Role: "program", Kind: c.spec.Kind, Listen: socket, Rounds: rounds, Seed: c.spec.Seed, FaultFloor: c.spec.FaultFloor}) // if it fails the process has ended
	return p, ours, nil
}

// runProgram touches remote memory and says how long that took.
func runProgram(spec *role, w *json.Encoder) error {
	debug.SetGCPercent(-1) // a collection would wait for a fault
	var f faulted
	window, err := excache.Join(spec.Listen)
	if err != nil {
		return w.Encode(faulted{Error: err.Error()})
	}
	defer window.Close()
	mem, err := window.Take(cachedBytes)
	if err != nil {
		return w.Encode(faulted{Error: err.Error()})
	}
	turns := os.NewFile(3, "turns")
	defer turns.Close()
	unix.CloseOnExec(3)
	floor := openFaultFloor(spec, &f)
	defer floor.close()
	if err := w.Encode(faulted{}); err != nil {
		return err
	}
	if err := f.touch(mem, spec, floor, turns); err != nil {
		return w.Encode(faulted{Error: err.Error()})
	}
	if err := w.Encode(faulted{}); err != nil {
		return err
	}
	return w.Encode(f)
}

// faultTurns is how often the program and its floor take turns at each measurement.
const faultTurns = 5

func (f *faulted) touch(mem []byte, spec *role, floor *faultFloor, turns *os.File) error {
	for i := range mem {
		mem[i] = byte(i >> 12)
	}
	rng := rand.New(rand.NewPCG(spec.Seed, 3))
	per := (spec.Rounds + faultTurns - 1) / faultTurns
	for range faultTurns {
		if err := others(turns); err != nil {
			return err
		}
		f.Misses[0] = append(f.Misses[0], random(mem, per, rng)...)
		floor.misses(0, per)
	}
	areas := len(mem) / excache.PageBytes / walkArea
	walks(mem, 0, (walkRounds-1)*areas)
	for turn := range faultTurns {
		from := (walkRounds-1)*areas + turn*areas/faultTurns
		f.Misses[1] = append(f.Misses[1], walks(mem, from, (walkRounds-1)*areas+(turn+1)*areas/faultTurns)...)
		floor.misses(1, areas/faultTurns)
	}
	if len(f.Misses[1]) == 0 {
		return errors.New("no walk had misses of 1, 2, 4, 8 and 16 pages: there is no time of 64 KiB")
	}
	sum, took := inOrder(mem), time.Duration(0) // what was dirty has been written back
	for range faultTurns {
		start := time.Now()
		sum += inOrder(mem)
		took += time.Since(start)
		floor.read()
	}
	f.Read = float64(faultTurns*len(mem)) / took.Seconds()
	if sum == 0 {
		return errors.New("remote memory reads as zeros")
	}
	return nil
}

// others lets the process that answers time its Gets.
func others(turns *os.File) error {
	var b [1]byte
	_, err := turns.Write(b[:])
	if err == nil {
		_, err = turns.Read(b[:])
	}
	return err
}

// inOrder reads a word of each cache line: what is measured is the memory's way here.
func inOrder(mem []byte) (sum uint64) {
	for i := 0; i < len(mem); i += 64 {
		sum += binary.LittleEndian.Uint64(mem[i:])
	}
	return sum
}

// random writes to n pages at random and keeps the times of those that were not there.
func random(mem []byte, n int, rng *rand.Rand) samples {
	s := make(samples, 0, n)
	for i := range n {
		if d := write(mem, rng.IntN(len(mem)/excache.PageBytes), byte(i)); d > missLeast {
			s = append(s, float64(d))
		}
	}
	return s
}

const (
	// walkRounds are made over all areas, of walkArea pages each.
	walkRounds = 3
	walkArea   = 32
	// walkPages are written of an area, in runs that begin at walkRuns.
	walkPages = 1 + 2 + 4 + 8 + 16
	walkRuns  = 1<<0 | 1<<1 | 1<<3 | 1<<7 | 1<<15
)

// walks writes page by page at places that have left since the last walk there, each of which is reached again after all others. It returns the times of the
// misses that bring 64 KiB: the fifth of a walk whose misses brought 1, 2, 4, 8 and 16 pages. Where a page was there still, runs are other
// ones; and in the first rounds what leaves is what was used at random before, page by page.
func walks(mem []byte, from, to int) samples {
	areas := len(mem) / excache.PageBytes / walkArea
	s := make(samples, 0, to-from)
	for walk := from; walk < to; walk++ {
		missed, last := 0, time.Duration(0)
		for at := range walkPages {
			if d := write(mem, walk*37%areas*walkArea+at, byte(walk)); d > missLeast {
				missed |= 1 << at
				last = d
			}
		}
		if missed == walkRuns {
			s = append(s, float64(last))
		}
	}
	return s
}

// write writes to a page and says how long that took.
func write(mem []byte, page int, b byte) time.Duration {
	p := &mem[page*excache.PageBytes]
	start := time.Now()
	*p = b
	return time.Since(start)
}

// missesOverFIFO has the cache's core and a plain queue of the same size answer a skewed program: no time is in it.
func missesOverFIFO(seed uint64) float64 {
	const room = excache.RoomBytes / excache.PageBytes
	const pages, local, accesses = 4 * room, room, 400_000
	core := excache.NewCore(local)
	for r := range pages / room {
		core.AddRoom(r)
	}
	rng := rand.New(rand.NewPCG(seed, 4))
	queue, there := make([]uint32, local), make([]bool, pages)
	plain, ours := 0, 0
	for range accesses {
		p := uint32(pages*math.Pow(rng.Float64(), 4)) * 2654435761 % pages
		write := rng.IntN(2) == 0
		if !core.Allows(p, false) {
			ours++
		}
		if !core.Allows(p, write) {
			core.Fault(p, write, false)
			core.MakeRoom()
		}
		if !there[p] {
			if old := &queue[plain%local]; plain < local {
				*old = p
			} else {
				there[*old], *old = false, p
			}
			there[p] = true
			plain++
		}
	}
	return float64(ours) / float64(plain)
}
