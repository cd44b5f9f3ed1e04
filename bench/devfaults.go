package bench

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/internal/cputime"
)

const (
	// victimKind is the role of a borrower that is killed while it writes.
	victimKind = "dev victim"
	// victims is how many there are, one after the other.
	victims = 50
	// reclaimTime bounds the wait for what a killed borrower had.
	reclaimTime = 10 * time.Second
	// idleTime is how long idle processes are watched, after calmTime.
	idleTime = 3 * time.Second
	calmTime = 300 * time.Millisecond
)

// driveFaults kills borrowers in the middle of their writes, and measures how soon their blocks are another's; then what processes use of the processors while a drive is
// attached by NBD and nobody does anything.
func (c *Config) driveFaults(ctx context.Context, spec role, dir string) (*Result, error) {
	w, crew, err := c.borrower(ctx, spec, dir, "heir")
	if err != nil {
		return nil, err
	}
	defer crew.end()
	defer w.close()
	spec.Servers, spec.Role = crew.infos, "client" // of those that are killed
	var reclaim samples
	for i := range victims {
		if c.Progress != nil {
			c.Progress("killed borrowers", float64(i)/victims)
		}
		took, err := c.killOne(ctx, w, spec, i)
		if err != nil {
			return nil, err
		}
		reclaim = append(reclaim, float64(took)/float64(time.Millisecond))
	}
	share, err := w.idle(dir, crew.servers[0].Pid())
	if err != nil {
		return nil, err
	}
	r := &Result{}
	hostInfo(r, c)
	r.Set("clock_ns", clockCost())
	r.Set("reclaim_ms_p50", reclaim.p(0.5))
	r.Set("reclaim_ms_p99", reclaim.p(0.99))
	r.Set("kills", victims)
	r.Set("idle_cpu_percent", share*100)
	return r, r.Err()
}

// killOne starts a borrower and kills it while it writes: how long it takes until w has the same blocks.
func (c *Config) killOne(ctx context.Context, w *client, spec role, i int) (time.Duration, error) {
	spec.Kind, spec.Name = victimKind, fmt.Sprintf("victim%d", i)
	p, err := start(ctx, c, spec, nil)
	if err != nil {
		return 0, err
	}
	if _, err = hearNote(p); err != nil {
		p.Kill()
		return 0, err
	}
	time.Sleep(time.Duration(w.rand.Uint64N(uint64(5 * time.Millisecond)))) // in the middle of whatever it does then
	killed := time.Now()
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return 0, err
	}
	defer p.End()
	for {
		d, err := w.borrow(driveName, device.Exclusive)
		if err == nil {
			took := time.Since(killed)
			return took, d.Close(ctx)
		}
		if !errors.Is(err, device.ErrBusy) || time.Since(killed) > reclaimTime {
			return 0, fmt.Errorf("bench: %v after its borrower was killed: %w", time.Since(killed), err)
		}
	}
}

// victim borrows all of the drive and writes it again and again.
func (c *client) victim() error {
	d, err := c.borrow(driveName, device.Exclusive)
	if err != nil {
		return err
	}
	if err := c.w.Encode(note{Text: "borrowed"}); err != nil {
		return err
	}
	for p := make([]byte, 64<<10); ; {
		if err := d.WriteAt(c.ctx, p, c.rand.Uint64N(d.Size()/uint64(len(p)))*uint64(len(p))); err != nil {
			return err
		}
	}
}

// idle is the part of a processor that lender and borrower use, with an NBD client attached that does nothing.
func (c *client) idle(dir string, lender int) (share float64, err error) {
	d, err := c.borrow(driveName, device.Shared)
	if err != nil {
		return 0, err
	}
	defer d.Close(context.WithoutCancel(c.ctx))
	path, stop, err := serveNBD(d, dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	conn, err := attach(path)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return processorShare(lender, os.Getpid())
}

// attach is an NBD client of the server at a socket, which has read a page: the borrower's leader serves it from then on.
func attach(path string) (net.Conn, error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	be, page := binary.BigEndian, make([]byte, drivePage)
	var greeting [18]byte // a magic number twice, and flags
	var export [10]byte   // its size and flags
	var reply [16]byte    // magic number, error, handle
	conn.SetDeadline(time.Now().Add(frontStart))
	_, err = io.ReadFull(conn, greeting[:])
	hello := be.AppendUint64(be.AppendUint32(nil, 3), be.Uint64(greeting[8:])) // fixed newstyle without zeroes; an option
	hello = be.AppendUint32(be.AppendUint32(hello, 1), 0)                      // the export without a name
	if err == nil {
		_, err = conn.Write(hello)
	}
	if err == nil {
		_, err = io.ReadFull(conn, export[:])
	}
	if err == nil {
		read := append(be.AppendUint32(nil, 0x25609513), make([]byte, 20)...) // a read, from 0 on
		_, err = conn.Write(be.AppendUint32(read, drivePage))
	}
	if err == nil {
		_, err = io.ReadFull(conn, reply[:])
	}
	if err == nil && (be.Uint32(reply[:]) != 0x67446698 || be.Uint32(reply[4:]) != 0) {
		err = fmt.Errorf("a read is answered by % x", reply)
	}
	if err == nil {
		_, err = io.ReadFull(conn, page)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("bench: NBD at %s: %w", path, err)
	}
	return conn, conn.SetDeadline(time.Time{})
}

// processorShare is the part of a processor that processes use when everybody is idle.
func processorShare(pids ...int) (share float64, err error) {
	used := func() (sum time.Duration, err error) {
		for _, pid := range pids {
			one, e := cputime.Process(pid)
			sum, err = sum+one, cmp.Or(err, e)
		}
		return sum, err
	}
	time.Sleep(calmTime)
	before, err := used()
	if err != nil {
		return 0, fmt.Errorf("bench: %w", err)
	}
	start := time.Now()
	time.Sleep(idleTime)
	after, err := used()
	if err != nil {
		return 0, fmt.Errorf("bench: %w", err)
	}
	return float64(after-before) / float64(time.Since(start)), nil
}
