package devicetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme"
	"github.com/wherry-fabric/wherry/device/nvme/host"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/ports"
)

var schemes = []string{"shm", "tcp"}

// TestWhole: what a borrower writes by commands of every size is what the file has then, and what it reads; also where the lender goes past its page cache.
func TestWhole(t *testing.T) {
	for _, name := range []string{"shm", "tcp", "shm,direct", "tcp,direct"} {
		t.Run(name, func(t *testing.T) {
			scheme, _, direct := strings.Cut(name, ",")
			r := newRig(t, scheme)
			if direct {
				r.node(",direct")
			} else {
				r.node("")
			}
			c, ctx := r.client("borrower"), r.ctx()
			d := r.borrow(c, host.Config{Mode: device.Exclusive})
			if d.Size() != driveBytes || d.BlockBytes() != 512 || d.Mapped() != (scheme == "shm") {
				t.Fatalf("%d bytes in blocks of %d, mapped %v", d.Size(), d.BlockBytes(), d.Mapped())
			}
			want := random(1, driveBytes)
			sizes := []int{512, 1024, 4096, 8192, 65536, 128 << 10, 256 << 10, 1 << 20, 5 << 19}
			for off, i := 0, 0; off < driveBytes; i++ {
				n := min(sizes[i%len(sizes)], driveBytes-off)
				if err := d.WriteAt(ctx, want[off:off+n], uint64(off)); err != nil {
					t.Fatal(err)
				}
				off += n
			}
			if err := d.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(r.file)
			if err != nil || sha256.Sum256(got) != sha256.Sum256(want) {
				t.Fatalf("the file is another: %v", err)
			}
			read := make([]byte, driveBytes)
			for off, i := 0, 4; off < driveBytes; i++ {
				n := min(sizes[i%len(sizes)], driveBytes-off)
				if err := d.ReadAt(ctx, read[off:off+n], uint64(off)); err != nil {
					t.Fatal(err)
				}
				off += n
			}
			if !bytes.Equal(read, want) {
				t.Fatal("what is read is another")
			}
			others(t, d, want)
			if err := d.Close(ctx); err != nil {
				t.Fatal(err)
			}
			if err := d.ReadAt(ctx, read[:512], 0); !errors.Is(err, host.ErrClosed) {
				t.Errorf("a returned drive is read: %v", err)
			}
		})
	}
}

// others tries the other commands on a drive that has want.
func others(t *testing.T, d *host.Drive, want []byte) {
	t.Helper()
	ctx := t.Context()
	for _, c := range []struct {
		p    []byte
		same bool
	}{{want[4096:8192], true}, {want[4096 : 4096+300<<10], true}, {want[:4096], false}} {
		if same, err := d.Compare(ctx, c.p, 4096); same != c.same || err != nil {
			t.Errorf("compare of %d bytes: %v, %v; want %v", len(c.p), same, err, c.same)
		}
	}
	for verb, do := range map[string]func(ctx context.Context, off, n uint64) error{"zeroed": d.WriteZeroes, "trimmed": d.Trim} {
		if err := do(ctx, 1<<20+512, 1<<20); err != nil {
			t.Errorf("%s: %v", verb, err)
		}
		got := make([]byte, 1<<20+1024)
		if err := d.ReadAt(ctx, got, 1<<20); err != nil {
			t.Fatal(err)
		}
		expect := append(append(append([]byte(nil), want[1<<20:1<<20+512]...), make([]byte, 1<<20)...), want[2<<20+512:2<<20+1024]...)
		if !bytes.Equal(got, expect) {
			t.Errorf("%s: other bytes than these", verb)
		}
		if err := d.WriteDurably(ctx, want[1<<20:2<<20+1024], 1<<20); err != nil {
			t.Errorf("durable write: %v", err)
		}
	}
	for what, err := range map[string]error{
		"half a block":      d.ReadAt(ctx, make([]byte, 100), 0),
		"between blocks":    d.WriteAt(ctx, make([]byte, 512), 100),
		"behind the end":    d.ReadAt(ctx, make([]byte, 512), d.Size()),
		"across the end":    d.WriteAt(ctx, make([]byte, 1024), d.Size()-512),
		"a trim beyond":     d.Trim(ctx, d.Size()-512, 1024),
		"a wrapping offset": d.ReadAt(ctx, make([]byte, 1024), ^uint64(511)),
	} {
		if !errors.Is(err, device.ErrSpec) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestSubmit: commands that nobody waits for one by one, as many as there is room for.
func TestSubmit(t *testing.T) {
	for _, scheme := range schemes {
		t.Run(scheme, func(t *testing.T) {
			r := newRig(t, scheme)
			r.node("")
			ctx := r.ctx()
			d := r.borrow(r.client("borrower"), host.Config{Mode: device.Exclusive, Depth: 16, BufferBytes: 16 << 10})
			want := random(2, 4<<20)
			for _, op := range []nvme.Opcode{nvme.OpWrite, nvme.OpCompare, nvme.OpRead} {
				seen := map[uint64]bool{}
				var slots []host.Slot
				for range 16 {
					s, err := d.Acquire(ctx)
					if err != nil {
						t.Fatal(err)
					}
					slots = append(slots, s)
				}
				for next := 0; len(seen) < len(want)/(16<<10); {
					for ; len(slots) > 0 && next < len(want); next += 16 << 10 {
						s := slots[len(slots)-1]
						slots = slots[:len(slots)-1]
						if clear(d.Buffer(s)); op != nvme.OpRead {
							copy(d.Buffer(s), want[next:])
						}
						if err := d.Submit(s, host.Transfer{Op: op, Off: uint64(next), Size: 16 << 10, Tag: uint64(next)}); err != nil {
							t.Fatal(err)
						}
					}
					var done [8]host.Done
					n, err := d.Reap(ctx, done[:])
					if err != nil {
						t.Fatal(err)
					}
					for _, e := range done[:n] {
						if e.Status != nvme.StatusOK || seen[e.Tag] || !bytes.Equal(d.Buffer(e.Slot), want[e.Tag:e.Tag+16<<10]) {
							t.Fatalf("%#x at %d: %v, seen before: %v", op, e.Tag, e.Status.Text(), seen[e.Tag])
						}
						seen[e.Tag] = true
						slots = append(slots, e.Slot)
					}
				}
				for _, s := range slots {
					d.Release(s)
				}
			}
		})
	}
}

// TestBorrowerKilled: what a borrower had that was killed in the middle of writing is another's soon, and nothing of the first comes late.
func TestBorrowerKilled(t *testing.T) {
	for _, scheme := range schemes {
		t.Run(scheme, func(t *testing.T) {
			r := newRig(t, scheme)
			r.node("")
			c, ctx := r.client("other"), r.ctx()
			for i := range 4 {
				victim := r.process("run-borrower", r.addr, r.tokens, "0", fmt.Sprint(driveBytes/2))
				if _, err := c.BorrowDrive(ctx, lenderName, driveName, host.Config{Mode: device.Exclusive}); !errors.Is(err, device.ErrBusy) {
					t.Fatalf("what is lent exclusively is lent again: %v", err)
				}
				victim.Process.Kill()
				victim.Wait()
				var d *host.Drive
				r.eventually("the drive can be borrowed again", func() (ok bool) {
					var err error
					if d, err = c.BorrowDrive(ctx, lenderName, driveName, host.Config{Mode: device.Exclusive}); err != nil && !errors.Is(err, device.ErrBusy) {
						t.Fatal(err)
					}
					return err == nil
				})
				want := random(uint64(i), driveBytes)
				if err := d.WriteAt(ctx, want, 0); err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Millisecond) // for a late write
				got := make([]byte, driveBytes)
				if err := d.ReadAt(ctx, got, 0); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("others than were written: %v", err)
				}
				if err := d.Close(ctx); err != nil {
					t.Fatal(err)
				}
			}
			info, err := r.client("admin").Device(ctx, lenderName, driveName)
			if err != nil || len(info.Leases) != 0 {
				t.Errorf("leases are left: %+v, %v", info, err)
			}
		})
	}
}

// TestLenderKilled: commands under way, and all that come, fail, and say whose loss it is. The end of the connection alone tells: the drive asks for nothing here.
func TestLenderKilled(t *testing.T) {
	for _, scheme := range schemes {
		t.Run(scheme, func(t *testing.T) {
			r := newRig(t, scheme)
			if scheme == "tcp" {
				free, err := ports.Free(1)
				if err != nil {
					t.Fatal(err)
				}
				r.addr = fmt.Sprintf("tcp://127.0.0.1:%d", free[0])
			}
			lender := r.process("run-node", r.addr, r.tokens, r.file)
			r.grant("*", "rw")
			ctx := r.ctx()
			d := r.borrow(r.client("borrower"), host.Config{Mode: device.Exclusive, LookEvery: time.Hour})
			ended := make(chan error, 4)
			for i := range uint64(cap(ended)) {
				go func() {
					p := make([]byte, 64<<10)
					for {
						if err := d.WriteAt(ctx, p, i<<20); err != nil {
							ended <- err
							return
						}
					}
				}()
			}
			time.Sleep(20 * time.Millisecond)
			lender.Process.Kill()
			lender.Wait()
			killed := time.Now()
			for range cap(ended) {
				if err := <-ended; !errors.Is(err, fabric.ErrPeerLost) || !strings.Contains(err.Error(), lenderName) {
					t.Errorf("%v", err)
				}
			}
			t.Logf("the last command failed %v after the lender had ended", time.Since(killed))
			if err := d.Flush(ctx); !errors.Is(err, fabric.ErrPeerLost) {
				t.Errorf("a flush of a lost drive: %v", err)
			}
		})
	}
}

// TestGrantsOutlast: who may borrow a drive is known to the node after a restart.
func TestGrantsOutlast(t *testing.T) {
	r := newRig(t, "shm")
	stop := r.start("")
	r.grant("borrower", "rw")
	r.grant("other", "rw")
	r.grant("other", "none")
	stop()
	t.Cleanup(r.start(""))
	r.borrow(r.client("borrower"), host.Config{Mode: device.Exclusive})
	if _, err := r.client("other").BorrowDrive(r.ctx(), lenderName, driveName, host.Config{Mode: device.Read}); !errors.Is(err, device.ErrNoDrive) {
		t.Errorf("a grant that was taken away: %v", err)
	}
}

// TestRights: who may borrow what, in which mode.
func TestRights(t *testing.T) {
	r := newRig(t, "shm")
	r.node("")
	ctx := r.ctx()
	if _, err := r.client("plain").BorrowDrive(ctx, lenderName, driveName, host.Config{Mode: device.Read}); !errors.Is(err, cluster.ErrForbidden) {
		t.Errorf("without the capability device: %v", err)
	}
	r.grant("*", "none")
	c := r.client("borrower")
	if _, err := c.BorrowDrive(ctx, lenderName, driveName, host.Config{Mode: device.Read}); !errors.Is(err, device.ErrNoDrive) {
		t.Errorf("without a grant: %v", err)
	}
	if err := c.GrantDevice(ctx, lenderName, driveName, "borrower", "rw"); !errors.Is(err, cluster.ErrForbidden) {
		t.Errorf("a borrower grants the drive to itself: %v", err)
	}
	r.grant("borrower", "r")
	if _, err := c.BorrowDrive(ctx, lenderName, driveName, host.Config{Mode: device.Shared}); !errors.Is(err, cluster.ErrForbidden) {
		t.Errorf("mode shared with a grant to read: %v", err)
	}
	d := r.borrow(c, host.Config{Mode: device.Read})
	var refused *host.StatusError
	p := make([]byte, 4096)
	for what, err := range map[string]error{"write": d.WriteAt(ctx, p, 0), "zeroing": d.WriteZeroes(ctx, 0, 4096), "trim": d.Trim(ctx, 0, 4096)} {
		if !errors.As(err, &refused) || refused.Status != nvme.StatusProtected {
			t.Errorf("%s in mode read: %v", what, err)
		}
	}
	if err := d.ReadAt(ctx, p, 0); err != nil || !d.ReadOnly() {
		t.Errorf("a read in mode read: %v", err)
	}
	if err := r.client("other").ReturnLease(ctx, lenderName, d.Lease()); !errors.Is(err, device.ErrNoLease) {
		t.Errorf("another returns the lease: %v", err)
	}
	if err := r.client("admin").ReturnLease(ctx, lenderName, d.Lease()); err != nil {
		t.Errorf("an admin takes it back: %v", err)
	}
	r.eventually("the borrower hears of that", func() bool { return d.ReadAt(ctx, p, 0) != nil })
}

// TestCloseInUse: a drive that is returned while others use it ends their commands, and takes no memory from under them.
func TestCloseInUse(t *testing.T) {
	r := newRig(t, "shm")
	r.node("")
	c, ctx := r.client("borrower"), r.ctx()
	for range 20 {
		d := r.borrow(c, host.Config{Mode: device.Exclusive})
		ended := make(chan error, 4)
		for i := range uint64(cap(ended)) {
			go func() {
				p := make([]byte, 256<<10)
				for {
					if err := errors.Join(d.WriteAt(ctx, p, i<<20), d.ReadAt(ctx, p, i<<20)); err != nil {
						ended <- err
						return
					}
				}
			}()
		}
		time.Sleep(2 * time.Millisecond)
		if err := d.Close(ctx); err != nil {
			t.Fatal(err)
		}
		for range cap(ended) {
			if err := <-ended; err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a command on a returned drive: %v", err)
			}
		}
	}
}

// TestCompareAndWrite: borrowers of one block count in it by Compare and Write, and none of their counts is lost.
func TestCompareAndWrite(t *testing.T) {
	for _, scheme := range schemes {
		t.Run(scheme, func(t *testing.T) {
			r := newRig(t, scheme)
			r.node("")
			ctx := r.ctx()
			const each, block = 40, 3 << 10
			var group sync.WaitGroup
			for _, who := range []string{"borrower", "other"} {
				d := r.borrow(r.client(who), host.Config{Mode: device.Shared, Depth: 4})
				for range 3 {
					group.Go(func() {
						was, next := make([]byte, 1024), make([]byte, 1024)
						for n := 0; n < each; {
							if err := d.ReadAt(ctx, was, block); err != nil {
								t.Error(err)
								return
							}
							copy(next, was)
							binary.LittleEndian.PutUint64(next, binary.LittleEndian.Uint64(was)+1)
							binary.LittleEndian.PutUint64(next[1016:], binary.LittleEndian.Uint64(was[1016:])+1)
							swapped, err := d.CompareAndWrite(ctx, was, next, block)
							if err != nil {
								t.Error(err)
								return
							}
							if swapped {
								n++
							}
						}
					})
				}
			}
			group.Wait()
			got, err := os.ReadFile(r.file)
			if err != nil || binary.LittleEndian.Uint64(got[block:]) != 6*each || binary.LittleEndian.Uint64(got[block+1016:]) != 6*each {
				t.Errorf("%d and %d of %d, %v", binary.LittleEndian.Uint64(got[block:]), binary.LittleEndian.Uint64(got[block+1016:]), 6*each, err)
			}
			d := r.borrow(r.client("borrower"), host.Config{Mode: device.Read})
			var refused *host.StatusError
			if _, err := d.CompareAndWrite(ctx, make([]byte, 512), make([]byte, 512), 0); !errors.As(err, &refused) || refused.Status != nvme.StatusProtected {
				t.Errorf("in mode read: %v", err)
			}
			if _, err := d.CompareAndWrite(ctx, make([]byte, 512), make([]byte, 1024), 0); !errors.Is(err, device.ErrSpec) {
				t.Errorf("of two lengths: %v", err)
			}
		})
	}
}

// TestReserved: a reservation keeps other borrowers out, of other ranges too that overlap, and goes with its holder.
func TestReserved(t *testing.T) {
	for _, scheme := range schemes {
		t.Run(scheme, func(t *testing.T) {
			r := newRig(t, scheme)
			r.node("")
			ctx := r.ctx()
			a := r.borrow(r.client("borrower"), host.Config{Mode: device.Shared, Size: 1 << 20})
			b := r.borrow(r.client("other"), host.Config{Mode: device.Shared, Size: 1 << 20})
			wide := r.borrow(r.client("other"), host.Config{Mode: device.Shared})
			beside := r.borrow(r.client("other"), host.Config{Mode: device.Shared, Offset: 1 << 20})
			reader := r.borrow(r.client("other"), host.Config{Mode: device.Read, Size: 1 << 20})
			p := make([]byte, 4096)
			status := func(err error) nvme.Status {
				var refused *host.StatusError
				if err != nil && !errors.As(err, &refused) {
					t.Fatal(err)
				}
				if refused == nil {
					return nvme.StatusOK
				}
				return refused.Status
			}
			is := func(what string, err error, want nvme.Status) {
				t.Helper()
				if got := status(err); got != want {
					t.Errorf("%s: %s", what, got.Text())
				}
			}
			is("a registers", a.Register(ctx, 11), nvme.StatusOK)
			is("a reserves", a.Reserve(ctx, 11, nvme.WriteExclusive), nvme.StatusOK)
			is("a writes", a.WriteAt(ctx, p, 0), nvme.StatusOK)
			is("b writes", b.WriteAt(ctx, p, 0), nvme.StatusReserved)
			is("b makes zeros", b.WriteZeroes(ctx, 0, 4096), nvme.StatusReserved)
			is("b trims", b.Trim(ctx, 0, 4096), nvme.StatusReserved)
			is("b flushes", b.Flush(ctx), nvme.StatusReserved)
			is("b reads", b.ReadAt(ctx, p, 0), nvme.StatusOK)
			is("b reserves without a key", b.Reserve(ctx, 0, nvme.WriteExclusive), nvme.StatusReserved)
			is("the wide one writes", wide.WriteAt(ctx, p, 0), nvme.StatusReserved)
			is("the one beside writes", beside.WriteAt(ctx, p, 0), nvme.StatusOK)
			is("the reader registers", reader.Register(ctx, 5), nvme.StatusProtected)
			_, err := b.CompareAndWrite(ctx, p, p, 0)
			is("b compares and writes", err, nvme.StatusReserved)
			is("b registers", b.Register(ctx, 22), nvme.StatusOK)
			kind, who, err := b.Reservation(ctx)
			if err != nil || kind != nvme.WriteExclusive || len(who) != 2 || who[0] != (host.Registrant{Lease: a.Lease(), Key: 11, Holds: true}) || who[1] != (host.Registrant{Lease: b.Lease(), Key: 22}) {
				t.Errorf("kind %d, %+v, %v", kind, who, err)
			}
			is("b preempts a", b.Preempt(ctx, 22, 11, nvme.ExclusiveAccess), nvme.StatusOK)
			is("a reads", a.ReadAt(ctx, p, 0), nvme.StatusReserved)
			if err := b.Close(ctx); err != nil {
				t.Fatal(err)
			}
			is("a writes, as b is gone", a.WriteAt(ctx, p, 0), nvme.StatusOK)
			if kind, who, err := a.Reservation(ctx); err != nil || kind != 0 || len(who) != 0 {
				t.Errorf("kind %d, %+v, %v", kind, who, err)
			}
		})
	}
}

// TestExpired: a command whose context ends leaves its slot to its end, and its data nowhere.
func TestExpired(t *testing.T) {
	r := newRig(t, "shm")
	r.node("")
	d := r.borrow(r.client("borrower"), host.Config{Mode: device.Exclusive, Depth: 2})
	want := random(5, 64<<10)
	if err := d.WriteAt(r.ctx(), want, 0); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(r.ctx())
	cancel()
	for range 50 {
		p := make([]byte, 64<<10)
		err := d.ReadAt(gone, p, 0)
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err != nil && !bytes.Equal(p, make([]byte, len(p))) {
			t.Fatal("a read that failed has written its buffer")
		}
		if err := d.ReadAt(r.ctx(), p, 0); err != nil || !bytes.Equal(p, want) {
			t.Fatalf("a read after it: %v", err)
		}
	}
}

// TestShared: borrowers of the same blocks in modes shared and read see what the others write; ranges beside each other do not meet.
func TestShared(t *testing.T) {
	r := newRig(t, "tcp")
	r.node("")
	ctx := r.ctx()
	a := r.borrow(r.client("borrower"), host.Config{Mode: device.Shared, Size: 1 << 20})
	b := r.borrow(r.client("other"), host.Config{Mode: device.Shared, Offset: 512 << 10, Size: 1 << 20})
	reader := r.borrow(r.client("other"), host.Config{Mode: device.Read})
	if _, err := r.client("other").BorrowDrive(ctx, lenderName, driveName, host.Config{Mode: device.Exclusive, Offset: 1 << 20, Size: 4096}); !errors.Is(err, device.ErrBusy) {
		t.Errorf("exclusive beside shared: %v", err)
	}
	if err := errors.Join(a.WriteAt(ctx, random(6, 1<<20), 0), b.WriteAt(ctx, random(7, 1<<20), 0)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 2<<20)
	if err := reader.ReadAt(ctx, got, 0); err != nil {
		t.Fatal(err)
	}
	want := append(append(random(6, 1<<20)[:512<<10:512<<10], random(7, 1<<20)...), make([]byte, 512<<10)...)
	if !bytes.Equal(got, want) {
		t.Error("the reader sees others than were written")
	}
}
