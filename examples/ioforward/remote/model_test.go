package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/examples/ioforward/ionode"
	"github.com/wherry-fabric/wherry/examples/ioforward/remote"
	"github.com/wherry-fabric/wherry/examples/ioforward/wire"
)

var bg = context.Background()

// TestModel does the same random operations on a remote file, by two handles, and on bytes here.
func TestModel(t *testing.T) {
	configs := map[string]remote.Config{
		"default": {}, "small": {IOBytes: 4096, Window: 3, Slots: 5, Calls: 2}, "lone": {IOBytes: 4096, Window: 1, Slots: 4, Calls: 1},
	}
	for name, cfg := range configs {
		t.Run(name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			dir := t.TempDir()
			s := newStation(t, overTCP, ionode.Config{Dir: dir}, nil)
			c := newClient(t, s.addr, cfg, nil)
			m := &model{t: t, c: c, rnd: rand.New(rand.NewPCG(seed, 1)), files: []*remote.File{
				mustOpen(t, c, "f", os.O_RDWR|os.O_CREATE), mustOpen(t, c, "f", os.O_RDWR)}}
			steps := 600
			if testing.Short() {
				steps = 150
			}
			for i := 0; i < steps && !t.Failed(); i++ {
				m.step()
			}
			for _, f := range m.files {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}
			if got, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || !bytes.Equal(got, m.want) {
				t.Errorf("the node's file has %d bytes, %v; want %d", len(got), err, len(m.want))
			}
		})
	}
}

const modelBytes = 60_000

type model struct {
	t     *testing.T
	c     *remote.Client
	rnd   *rand.Rand
	files []*remote.File
	want  []byte
	at    int // where a sequential reader or writer is
}

func (m *model) step() {
	f := m.files[m.rnd.IntN(len(m.files))]
	off, n := m.rnd.IntN(modelBytes), m.rnd.IntN(9000)
	if m.rnd.IntN(2) == 0 { // go on from where the last one ended
		off = m.at
	}
	if off+n > modelBytes {
		off = 0
	}
	switch what := m.rnd.IntN(20); {
	case what < 9:
		m.at = off + n
		m.read(f, off, n)
	case what < 17:
		m.at = off + n
		m.write(f, off, n)
	case what < 18:
		m.truncate(f, m.rnd.IntN(modelBytes))
	case what < 19:
		if err := f.Sync(); err != nil {
			m.t.Error(err)
		}
	default:
		info, err := m.c.Stat(bg, "f")
		if err != nil || info.Size() != int64(len(m.want)) {
			m.t.Errorf("stat: %d bytes, %v; want %d", info.Size(), err, len(m.want))
		}
	}
}

func (m *model) read(f *remote.File, off, n int) {
	got := make([]byte, n)
	k, err := f.ReadAt(got, int64(off))
	want := m.want[min(off, len(m.want)):min(off+n, len(m.want))]
	if !bytes.Equal(got[:k], want) || err != nil && err != io.EOF || (err == io.EOF) != (len(want) < n) {
		m.t.Errorf("read [%d, +%d) of %d: %d bytes, %v; the first difference is at %d", off, n, len(m.want), k, err, differ(got[:k], want))
	}
}

func differ(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

func (m *model) grow(size int) {
	if size > len(m.want) {
		m.want = append(m.want, make([]byte, size-len(m.want))...)
	}
}

func (m *model) write(f *remote.File, off, n int) {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(m.rnd.Uint32())
	}
	if n > 0 {
		m.grow(off + n)
	}
	copy(m.want[min(off, len(m.want)):], p)
	if k, err := f.WriteAt(p, int64(off)); err != nil || k != n {
		m.t.Errorf("write [%d, +%d): %d, %v", off, n, k, err)
	}
}

func (m *model) truncate(f *remote.File, size int) {
	var err error
	if m.rnd.IntN(2) == 0 {
		err = f.Truncate(int64(size))
	} else {
		err = m.c.Truncate(bg, "f", int64(size))
	}
	if err != nil {
		m.t.Errorf("truncate to %d: %v", size, err)
	}
	m.grow(size)
	m.want = m.want[:size]
}

// TestMany keeps more files and goroutines busy than there are slots and calls.
func TestMany(t *testing.T) {
	s := newStation(t, overTCP, ionode.Config{Dir: t.TempDir(), Limits: ionode.Limits{Buffers: 2, CallsPerClient: 3}}, nil)
	c := newClient(t, s.addr, remote.Config{IOBytes: 8192, Window: 4, Slots: 6, Calls: 8}, nil)
	var all sync.WaitGroup
	for i := range 24 {
		all.Go(func() {
			name, data := fmt.Sprintf("f%d", i), randomBytes(uint64(i), 100_000+i)
			if err := fillFile(c, name, data); err != nil {
				t.Error(err)
				return
			}
			if got, err := fs.ReadFile(c.FS(), name); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s: %d bytes, %v", name, len(got), err)
			}
		})
	}
	all.Wait()
	eventually(t, "no handles are left", func() bool { return s.node.Stats().Handles == 0 })
}

// TestManyOutstanding looks at the node for several transfers of one file at once: ahead of a
// reader, and behind a writer.
func TestManyOutstanding(t *testing.T) {
	s := newStation(t, overTCP, ionode.Config{Dir: t.TempDir()}, nil)
	c := newClient(t, s.addr, remote.Config{}, nil)
	data := randomBytes(1, 8<<20)
	eventually(t, "several writes at once", func() bool {
		if err := fillFile(c, "f", data); err != nil {
			t.Fatal(err)
		}
		return s.node.Stats().MostMoving > 1
	})
	s.stop()
	s.start(s.addr)
	eventually(t, "several reads at once", func() bool {
		f, err := c.OpenFile(bg, "f", os.O_RDONLY, 0)
		if err != nil {
			return false // until the node is found again
		}
		defer f.Close()
		got := new(bytes.Buffer)
		if _, err := io.CopyBuffer(got, struct{ io.Reader }{f}, make([]byte, 10_000)); err != nil || !bytes.Equal(got.Bytes(), data) {
			t.Fatalf("read %d bytes, %v", got.Len(), err)
		}
		return s.node.Stats().MostMoving > 1
	})
	if st := s.node.Stats(); st.Moving != 0 || st.ReadBytes < uint64(len(data)) {
		t.Errorf("afterwards: %+v", st)
	}
}

// TestTruncatingOpen opens to truncate what another handle has just written.
func TestTruncatingOpen(t *testing.T) {
	s := newStation(t, overTCP, ionode.Config{Dir: t.TempDir()}, nil)
	c := newClient(t, s.addr, remote.Config{}, nil)
	f := mustOpen(t, c, "f", os.O_RDWR|os.O_CREATE)
	for range 50 {
		if _, err := f.WriteAt([]byte("written before"), 0); err != nil {
			t.Fatal(err)
		}
		if err := mustOpen(t, c, "f", os.O_WRONLY|os.O_TRUNC).Close(); err != nil {
			t.Error(err)
		}
		if info, err := f.Stat(); err != nil || info.Size() != 0 {
			t.Fatalf("after a truncating open: %v, %v", info.Size(), err)
		}
	}
}

// TestIdleFilesGiveWay leaves more files half written than there are slots.
func TestIdleFilesGiveWay(t *testing.T) {
	dir := t.TempDir()
	s := newStation(t, overTCP, ionode.Config{Dir: dir}, nil)
	c := newClient(t, s.addr, remote.Config{IOBytes: 4096, Slots: 4}, nil)
	for i := range 20 {
		f := mustOpen(t, c, fmt.Sprint(i), os.O_WRONLY|os.O_CREATE)
		if _, err := f.Write([]byte("half")); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "what was written arrives without being flushed", func() bool {
		for i := range 20 {
			if got, _ := os.ReadFile(filepath.Join(dir, fmt.Sprint(i))); string(got) != "half" {
				return false
			}
		}
		return true
	})
}

// TestDiskFull has the node's disk fill up behind the writer's back.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("cannot mount a small tmpfs to fill: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	s := newStation(t, overTCP, ionode.Config{Dir: dir}, nil)
	defer s.stop()
	c := newClient(t, s.addr, remote.Config{}, nil)
	f := mustOpen(t, c, "f", os.O_WRONLY|os.O_CREATE)
	var err error
	for range 100 {
		if _, err = f.Write(make([]byte, 100_000)); err != nil {
			break
		}
	}
	if err == nil {
		err = f.Sync()
	}
	var pe *fs.PathError
	if !errors.Is(err, syscall.ENOSPC) || !errors.As(err, &pe) {
		t.Errorf("writing to a full disk: %v", err)
	}
	if err := f.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("close: %v", err)
	}
	space, err := c.Space(bg)
	if err != nil || space.Blocks*uint64(space.BlockBytes) != 1<<20 || space.Available != 0 {
		t.Errorf("the disk has %+v, %v", space, err)
	}
	if err := c.Remove(bg, "f", wire.File); err != nil {
		t.Error(err)
	}
	if err := fillFile(c, "g", make([]byte, 100_000)); err != nil {
		t.Errorf("when there is room again: %v", err)
	}
}

func TestAttributes(t *testing.T) {
	s := newStation(t, overTCP, ionode.Config{Dir: t.TempDir()}, nil)
	c := newClient(t, s.addr, remote.Config{}, nil)
	f := mustOpen(t, c, "f", os.O_RDWR|os.O_CREATE)
	when := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	check := func(what string, mode fs.FileMode) {
		t.Helper()
		info, err := c.Stat(bg, "f")
		if err != nil || !info.ModTime().Equal(when) || info.Mode() != mode {
			t.Errorf("%s: %v at %v, %v", what, info.Mode(), info.ModTime(), err)
		}
	}
	if _, err := f.Set(bg, wire.SetRequest{What: wire.SetMode | wire.SetMtime, Mode: 0o600, Mtime: wire.TimeOf(when)}); err != nil {
		t.Error(err)
	}
	check("by handle", 0o600)
	when = when.Add(time.Hour)
	if _, err := c.Set(bg, "f", wire.SetRequest{What: wire.SetMode | wire.SetMtime | wire.SetAtime, Mode: 0o640, Mtime: wire.TimeOf(when), Atime: wire.Time{Sec: 1}}); err != nil {
		t.Error(err)
	}
	check("by path", 0o640)
	if info, _ := c.Stat(bg, "f"); info.Attr().Atime != (wire.Time{Sec: 1}) {
		t.Errorf("read at %v", info.Attr().Atime)
	}
	if err := c.Rename(bg, "f", "g"); err != nil {
		t.Error(err)
	}
	if err := c.Remove(bg, "g", wire.File); err != nil {
		t.Error(err)
	}
	if _, err := f.Stat(); err != nil {
		t.Errorf("a file that was removed and is open: %v", err)
	}
	if _, err := c.Mkdir(bg, "d", 0o750); err != nil {
		t.Error(err)
	}
	if err := c.Remove(bg, "d", wire.Dir); err != nil {
		t.Error(err)
	}
}

func TestConfigs(t *testing.T) {
	for _, cfg := range []remote.Config{
		{Addr: "nowhere"}, {Addr: "tcp://127.0.0.1:1", IOBytes: 5000}, {Addr: "tcp://127.0.0.1:1", Slots: 1},
		{Addr: "tcp://127.0.0.1:1", Window: -1}, {Addr: "tcp://127.0.0.1:1", OpTime: -1},
	} {
		if err := cfg.Validate(); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
	for _, l := range []ionode.Limits{{IOBytes: 1}, {Buffers: -1}, {BuffersPerClient: -1}, {Buffers: 4, BuffersPerClient: 5}, {Lease: 1}, {CallTime: -1}} {
		if err := l.Validate(); err == nil {
			t.Errorf("%+v is accepted", l)
		}
	}
	s := newStation(t, overTCP, ionode.Config{Dir: t.TempDir(), Limits: ionode.Limits{IOBytes: 4096}}, nil)
	el := newElement(t, "client", nil)
	defer el.Close()
	if _, err := remote.New(bg, el, remote.Config{Addr: s.addr}); err == nil {
		t.Error("a client with larger transfers than the node's connected")
	}
	el = newElement(t, "node", nil)
	defer el.Close()
	if _, err := ionode.New(el, ionode.Config{Dir: "/nonesuch"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
}
