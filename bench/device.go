package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/lender"
	"github.com/wherry-fabric/wherry/device/nvme"
	"github.com/wherry-fabric/wherry/device/nvme/host"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/uring"
)

const (
	// drivePage is what a read or write is about.
	drivePage = 4 << 10
	// driveDepth is how many reads are under way where several are.
	driveDepth = 32
	// driveName is what is lent, and diskName a file on the machine's disk, past its page cache.
	driveName = "bench"
	diskName  = "disk"
	// diskBytes is that file's size.
	diskBytes = 64 << 20
)

// ram is a file in memory, which stands for a drive: its time is the kernel's copy.
func ram() (fd int, path string, err error) {
	if fd, err = unix.MemfdCreate("wherry-bench-drive", unix.MFD_CLOEXEC); err != nil {
		return -1, "", fmt.Errorf("bench: memfd: %w", err)
	}
	for at := int64(0); at < verbSpan; at += drivePage { // its pages are made now
		if _, err := unix.Pwrite(fd, make([]byte, drivePage), at); err != nil {
			unix.Close(fd)
			return -1, "", fmt.Errorf("bench: memfd: %w", err)
		}
	}
	return fd, fmt.Sprintf("/proc/self/fd/%d", fd), nil
}

// newDisk makes a file on a disk, as far as the folder for temporary files is on one.
func newDisk() (path string, err error) {
	f, err := os.CreateTemp("", "wherry-bench-disk-")
	if err != nil {
		return "", fmt.Errorf("bench: %w", err)
	}
	_, err = io.Copy(f, io.LimitReader(rand.NewChaCha8([32]byte{1}), diskBytes)) // no holes, which no disk is asked for
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		os.Remove(f.Name())
		return "", fmt.Errorf("bench: %w", err)
	}
	return f.Name(), nil
}

// serveDrive makes the server a lender.
func (s *station) serveDrive(disk string) error {
	fd, path, err := ram()
	if err != nil {
		return err
	}
	defer unix.Close(fd) // the lender has opened it
	l, err := lender.New(lender.Config{Element: s.el, Log: slog.New(slog.DiscardHandler), Reserve: func(string, int64) (func(), error) { return func() {}, nil }})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func() { l.Close() })
	s.el.Watch(func(*fabric.Endpoint) {}, func(ep *fabric.Endpoint, _ error) { go l.Abandoned(ep) })
	admin := cluster.Principal{Name: "bench", Caps: cluster.CapAdmin}
	l.Lend(lender.Spec{Class: "nvme", Name: diskName, Path: disk, Direct: true}) // where the file system has no O_DIRECT, the borrower is told so
	err = errors.Join(l.Lend(lender.Spec{Class: "nvme", Name: driveName, Path: path}), control.ServeDevices(s.rpc, l))
	for _, name := range []string{driveName, diskName} {
		if gerr := l.Grant(admin, &device.GrantRequest{Name: name, To: cluster.Everyone, Rights: "rw"}); !errors.Is(gerr, device.ErrNoDrive) {
			err = errors.Join(err, gerr)
		}
	}
	return err
}

// drive measures reads and writes of a borrowed drive in turns with pread on a file of the same kind here, and with Get; and how many there are
// a second where several are under way.
func (c *client) drive() error {
	d, err := c.borrow(driveName, device.Shared)
	if err != nil {
		return err
	}
	defer d.Close(context.WithoutCancel(c.ctx))
	mem, err := c.remote()
	if err != nil {
		return err
	}
	fd, _, err := ram()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	page := make([]byte, drivePage)
	offset := func() uint64 { return c.rand.Uint64N(verbSpan/drivePage) * drivePage }
	ways := []*verb{
		{name: "read_4k", f: func() error { return d.ReadAt(c.ctx, page, offset()) }},
		{name: "pread_4k", f: func() error { _, err := unix.Pread(fd, page, int64(offset())); return err }},
		{name: "write_4k", f: func() error { return d.WriteAt(c.ctx, page, offset()) }},
		{name: "get_4k", f: func() error { return mem.Get(c.ctx, page, offset()) }},
	}
	_, allocs, err := c.takeTurns(ways, c.bulkRounds())
	if err != nil {
		return err
	}
	for _, w := range ways {
		c.r.Set(w.name+"_ns_p50", w.times.p(0.5))
	}
	read, pread, get := ways[0].times.p(0.5), ways[1].times.p(0.5), ways[3].times.p(0.5)
	c.r.Set("read_minus_pread_ns", read-pread)
	c.r.Set("read_over_get", read/get)
	c.r.Set("allocs_per_op", allocs)
	rates, err := c.driveRates(d)
	if err != nil {
		return err
	}
	name := "far_iops_32"
	if d.Mapped() {
		name = "mapped_iops_32"
	}
	c.r.Set(name, rates.p(0.5))
	c.r.Set("mapped", d.Mapped())
	if err := c.beside(d); err != nil {
		return err
	}
	if err := c.disk(); err != nil {
		return err
	}
	c.r.Set("operations_each", len(ways[0].times)*c.leastBatch())
	return nil
}

// borrow borrows one of the server's drives.
func (c *client) borrow(name string, mode device.Mode) (*host.Drive, error) {
	asker := control.NewAsker(c.station.rpc, func(context.Context, string) (*fabric.Endpoint, error) { return c.eps[0], nil })
	return host.Open(c.ctx, host.Config{Element: c.el, Asker: asker, Node: c.spec.Servers[0].Name, Drive: name, Mode: mode, Depth: driveDepth, BufferBytes: drivePage})
}

// beside measures what two borrowers of a drive get, together and each, beside one alone.
func (c *client) beside(d *host.Drive) error {
	other, err := c.borrow(driveName, device.Shared)
	if err != nil {
		return err
	}
	defer other.Close(context.WithoutCancel(c.ctx))
	each := max(c.bulkRounds(), 4*driveDepth)
	var sums, shares samples
	for range bulkTurns {
		alone, err := c.reads(d, each, c.rand)
		if err != nil {
			return err
		}
		var stop atomic.Bool
		var counts [2]int
		var fails [2]error
		var group sync.WaitGroup
		start := time.Now()
		for i, d := range []*host.Drive{d, other} {
			seed := rand.New(rand.NewPCG(c.rand.Uint64(), uint64(i)))
			group.Go(func() {
				defer stop.Store(true)
				for !stop.Load() && (i > 0 || counts[0] < each) && fails[i] == nil {
					_, fails[i] = c.reads(d, 4*driveDepth, seed)
					counts[i] += 4 * driveDepth
				}
			})
		}
		group.Wait()
		if err := errors.Join(fails[:]...); err != nil {
			return err
		}
		a, b := float64(counts[0]), float64(counts[1])
		sums = append(sums, (a+b)/time.Since(start).Seconds()/alone)
		shares = append(shares, min(a, b)/max(a, b, 1))
	}
	c.r.Set("sum_over_one", sums.p(0.5))
	c.r.Set("min_over_max", shares.p(0.5))
	return nil
}

// disk measures reads of a borrowed file on the disk in turns with io_uring's of the same file here.
func (c *client) disk() error {
	d, err := c.borrow(diskName, device.Shared)
	if err != nil {
		c.r.Set("direct_left_out", err.Error())
		return nil
	}
	defer d.Close(context.WithoutCancel(c.ctx))
	file, err := os.OpenFile(c.spec.Disk, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	ring, err := uring.New(driveDepth, -1)
	if err != nil {
		c.r.Set("direct_left_out", err.Error())
		return nil
	}
	defer ring.Close()
	var lent, own, ratios samples
	for range bulkTurns {
		a, err := c.reads(d, 16*driveDepth, c.rand)
		if err != nil {
			return err
		}
		b, err := ringReads(ring, file, diskBytes, c.rand, func(sent int) bool { return sent < 16*driveDepth })
		if err != nil {
			return err
		}
		lent, own, ratios = append(lent, a), append(own, b), append(ratios, a/b)
	}
	c.r.Set("direct_iops_32", lent.p(0.5))
	c.r.Set("uring_iops_32", own.p(0.5))
	c.r.Set("direct_over_uring", ratios.p(0.5))
	return nil
}

// ringReads reads pages of a file of some size by io_uring, driveDepth at once and as long as there are to be more: how many a second.
func ringReads(ring *uring.Ring, f *os.File, size uint64, seed *rand.Rand, more func(sent int) bool) (perSecond float64, err error) {
	mem, err := unix.Mmap(-1, 0, driveDepth*drivePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return 0, err
	}
	defer unix.Munmap(mem)
	submit := func(slot uint64) {
		ring.Prepare(uring.OpRead, int(f.Fd()), mem[slot*drivePage:(slot+1)*drivePage], int64(seed.Uint64N(size/drivePage)*drivePage), slot)
	}
	start, sent, ended := time.Now(), 0, 0
	for ; sent < driveDepth; sent++ {
		submit(uint64(sent))
	}
	for ended < sent && err == nil {
		if err = ring.Wait(); err != nil {
			return 0, err
		}
		ended += ring.Reap(driveDepth, func(slot uint64, moved int, e error) {
			if e != nil || moved != drivePage {
				err = errors.Join(err, fmt.Errorf("a read of %s: %d bytes, %v", f.Name(), moved, e))
			} else if more(sent) {
				sent++
				submit(slot)
			}
		})
	}
	return float64(ended) / time.Since(start).Seconds(), err
}

// driveRates are reads a second, turn by turn, with driveDepth of them under way.
func (c *client) driveRates(d *host.Drive) (rates samples, err error) {
	each := max(c.bulkRounds(), 4*driveDepth)
	for range bulkTurns {
		rate, err := c.reads(d, each, c.rand)
		if err != nil {
			return nil, err
		}
		rates = append(rates, rate)
	}
	return rates, nil
}

// reads are n reads of a drive, driveDepth at once: how many a second.
func (c *client) reads(d *host.Drive, n int, seed *rand.Rand) (perSecond float64, err error) {
	slots := make([]host.Slot, driveDepth)
	for i := range slots {
		if slots[i], err = d.Acquire(c.ctx); err != nil {
			return 0, err
		}
		defer d.Release(slots[i])
	}
	submit := func(s host.Slot) error {
		return d.Submit(s, host.Transfer{Op: nvme.OpRead, Off: seed.Uint64N(min(d.Size(), diskBytes)/drivePage) * drivePage, Size: drivePage})
	}
	done := make([]host.Done, driveDepth)
	start, sent, ended := time.Now(), 0, 0
	for ; sent < driveDepth; sent++ {
		if err := submit(slots[sent]); err != nil {
			return 0, err
		}
	}
	for ended < sent {
		k, err := d.Reap(c.ctx, done)
		if err != nil {
			return 0, err
		}
		ended += k
		for _, e := range done[:k] {
			if e.Status != nvme.StatusOK {
				return 0, fmt.Errorf("a read of the drive: %s", e.Status.Text())
			}
			if sent < n {
				if err := submit(e.Slot); err != nil {
					return 0, err
				}
				sent++
			}
		}
	}
	return float64(ended) / time.Since(start).Seconds(), nil
}
