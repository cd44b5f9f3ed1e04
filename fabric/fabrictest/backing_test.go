package fabrictest_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/fabrictest"
	"github.com/wherry-fabric/wherry/fabric/shm"
	"github.com/wherry-fabric/wherry/fabric/tcp"
)

// registers is a Backing that loads and stores do not reach, as a device's registers or memory behind another bus.
type registers struct {
	mu     sync.Mutex
	bytes  []byte
	broken bool
}

var errBroken = errors.New("the device does not answer")

func (r *registers) Bytes() []byte                      { return nil }
func (r *registers) FD() (int, int64)                   { return -1, 0 }
func (r *registers) ReadAt(p []byte, off uint64) error  { return r.move(p, r.bytes[off:]) }
func (r *registers) WriteAt(p []byte, off uint64) error { return r.move(r.bytes[off:], p) }
func (r *registers) Close() error                       { return nil }

func (r *registers) move(dst, src []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken {
		return errBroken
	}
	copy(dst, src)
	return nil
}

// foreign is memory that somebody else made, at an offset of its memfd, as a guest's.
type foreign struct {
	fd     int
	all    []byte
	offset int64
}

func newForeign(size uint64, offset int64, seals int) (*foreign, error) {
	fd, err := unix.MemfdCreate("foreign", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	f := &foreign{fd: fd, offset: offset}
	whole := (int(size)+4095)&^4095 + int(offset)
	if err = unix.Ftruncate(fd, int64(whole)); err == nil {
		f.all, err = unix.Mmap(fd, 0, whole, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return f, nil
}

func (f *foreign) Bytes() []byte                { return f.all[f.offset:] }
func (f *foreign) FD() (int, int64)             { return f.fd, f.offset }
func (f *foreign) ReadAt([]byte, uint64) error  { return errors.ErrUnsupported }
func (f *foreign) WriteAt([]byte, uint64) error { return errors.ErrUnsupported }
func (f *foreign) Close() error                 { return errors.Join(unix.Munmap(f.all), unix.Close(f.fd)) }

var names atomic.Int32

func transports() map[string]fabrictest.Factory {
	return map[string]fabrictest.Factory{
		"tcp": func() (fabric.Transport, string, error) {
			t, err := tcp.New(tcp.Config{})
			return t, "tcp://127.0.0.1:0", err
		},
		"shm": func() (fabric.Transport, string, error) {
			t, err := shm.New(shm.Config{})
			return t, fmt.Sprintf("shm://backing-%d-%d", unix.Getpid(), names.Add(1)), err
		},
	}
}

func TestBackings(t *testing.T) {
	for scheme, f := range transports() {
		for name, open := range map[string]func(uint64) (fabric.Backing, error){
			"registers": func(n uint64) (fabric.Backing, error) { return &registers{bytes: make([]byte, n)}, nil },
			"foreign":   func(n uint64) (fabric.Backing, error) { return newForeign(n, 0, unix.F_SEAL_SHRINK) },
			"another program's": func(n uint64) (fabric.Backing, error) {
				f, err := newForeign(n, 0, unix.F_SEAL_SHRINK)
				if err != nil {
					return nil, err
				}
				defer unix.Munmap(f.all)
				return fabric.ForeignMemory(f.fd)
			},
			"foreign inside": func(n uint64) (fabric.Backing, error) { return newForeign(n, 8192, unix.F_SEAL_SHRINK) },
		} {
			t.Run(scheme+"/"+name, func(t *testing.T) { fabrictest.RunBacking(t, f, open) })
		}
	}
}

// TestBackingFails: where the bytes cannot be reached the operation fails, at whatever size, and the endpoint lives on.
func TestBackingFails(t *testing.T) {
	for scheme, f := range transports() {
		t.Run(scheme, func(t *testing.T) {
			a, b, ep := connected(t, f)
			defer a.Close()
			defer b.Close()
			dev := &registers{bytes: make([]byte, 300_000)}
			seg, err := b.NewSegmentOn(dev, 300_000, fabric.Writable)
			must(t, err)
			k, err := seg.Key(fabric.RightRead | fabric.RightWrite)
			must(t, err)
			rem, err := ep.Import(t.Context(), k)
			must(t, err)
			for _, broken := range []bool{true, false, true, false} {
				dev.mu.Lock()
				dev.broken = broken
				dev.mu.Unlock()
				for _, n := range []int{8, 4096, 5000, 300_000} {
					put, get := rem.Put(t.Context(), make([]byte, n), 0), rem.Get(t.Context(), make([]byte, n), 0)
					if broken && (!errors.Is(put, fabric.ErrBacking) || !errors.Is(get, fabric.ErrBacking)) || !broken && (put != nil || get != nil) {
						t.Errorf("broken %v, %d bytes: put %v, get %v", broken, n, put, get)
					}
				}
			}
		})
	}
}

// TestBackingRefused: memory that peers could make fault, or write though it is sealed, makes no segment, and stays its maker's.
func TestBackingRefused(t *testing.T) {
	a, b, _ := connected(t, transports()["tcp"])
	defer a.Close()
	defer b.Close()
	for _, c := range []struct {
		name   string
		seals  int
		offset int64
		kind   fabric.SegmentKind
		ok     bool
	}{
		{"may shrink", unix.F_SEAL_GROW, 0, fabric.Writable, false},
		{"sealed, and others can write", unix.F_SEAL_SHRINK, 0, fabric.Sealed, false},
		{"sealed", unix.F_SEAL_SHRINK | unix.F_SEAL_FUTURE_WRITE, 0, fabric.Sealed, true},
		{"inside a page", unix.F_SEAL_SHRINK, 100, fabric.Writable, false},
	} {
		mem, err := newForeign(4096, c.offset, c.seals)
		must(t, err)
		seg, err := a.NewSegmentOn(mem, 4096-uint64(c.offset), c.kind)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil {
			must(t, mem.Close())
		} else {
			must(t, seg.Close())
		}
	}
	if _, err := a.NewSegmentOn(&registers{}, 0, fabric.Writable); err == nil {
		t.Error("a segment of no bytes")
	}
}

func connected(t *testing.T, f fabrictest.Factory) (a, b *fabric.Element, ep *fabric.Endpoint) {
	t.Helper()
	var list [2]*fabric.Element
	var addr string
	for i := range list {
		tr, listen, err := f()
		must(t, err)
		list[i], err = fabric.New(fabric.Config{Name: fmt.Sprint("element ", i), Transports: []fabric.Transport{tr}})
		must(t, err)
		addr, err = list[i].Listen(listen)
		must(t, err)
	}
	ep, err := list[0].Dial(t.Context(), addr)
	must(t, err)
	return list[0], list[1], ep
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
