package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/lender"
	"github.com/wherry-fabric/wherry/device/nvme"
	"github.com/wherry-fabric/wherry/device/nvme/host"
	"github.com/wherry-fabric/wherry/fabric"
)

const (
	// drivePage is what a read or write is about.
	drivePage = 4 << 10
	// driveDepth is how many reads are under way where several are.
	driveDepth = 32
	// driveName is what is lent.
	driveName = "bench"
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

// serveDrive makes the server a lender.
func (s *station) serveDrive() error {
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
	admin := cluster.Principal{Name: "bench", Caps: cluster.CapAdmin}
	return errors.Join(l.Lend(lender.Spec{Class: "nvme", Name: driveName, Path: path}),
		l.Grant(admin, &device.GrantRequest{Name: driveName, To: cluster.Everyone, Rights: "rw"}), control.ServeDevices(s.rpc, l))
}

// drive measures reads and writes of a borrowed drive in turns with pread on a file of the same kind here, and with Get; and how many there are
// a second where several are under way.
func (c *client) drive() error {
	asker := control.NewAsker(c.station.rpc, func(context.Context, string) (*fabric.Endpoint, error) { return c.eps[0], nil })
	d, err := host.Open(c.ctx, host.Config{Element: c.el, Asker: asker, Node: c.spec.Servers[0].Name, Drive: driveName, Mode: device.Exclusive, Depth: driveDepth, BufferBytes: drivePage})
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
	c.r.Set("operations_each", len(ways[0].times)*c.leastBatch())
	return nil
}

// driveRates are reads a second, turn by turn, with driveDepth of them under way.
func (c *client) driveRates(d *host.Drive) (rates samples, err error) {
	slots := make([]host.Slot, driveDepth)
	for i := range slots {
		if slots[i], err = d.Acquire(c.ctx); err != nil {
			return nil, err
		}
		defer d.Release(slots[i])
	}
	each := max(c.bulkRounds(), 4*driveDepth)
	submit := func(s host.Slot) error {
		return d.Submit(s, host.Transfer{Op: nvme.OpRead, Off: c.rand.Uint64N(verbSpan/drivePage) * drivePage, Size: drivePage})
	}
	done := make([]host.Done, driveDepth)
	for range bulkTurns {
		start := time.Now()
		sent, ended := 0, 0
		for ; sent < driveDepth; sent++ {
			if err := submit(slots[sent]); err != nil {
				return nil, err
			}
		}
		for ended < sent {
			n, err := d.Reap(c.ctx, done)
			if err != nil {
				return nil, err
			}
			ended += n
			for _, e := range done[:n] {
				if e.Status != nvme.StatusOK {
					return nil, fmt.Errorf("a read of the drive: %s", e.Status.Text())
				}
				if sent < each {
					if err := submit(e.Slot); err != nil {
						return nil, err
					}
					sent++
				}
			}
		}
		rates = append(rates, float64(ended)/time.Since(start).Seconds())
	}
	return rates, nil
}
