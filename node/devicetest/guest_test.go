package devicetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme/guest"
	"github.com/wherry-fabric/wherry/device/nvme/host"
	"github.com/wherry-fabric/wherry/device/vfiouser"
	"github.com/wherry-fabric/wherry/internal/vm"
)

// guestPatience bounds all tests with a guest, which take a minute and a half at a load of 15: QEMU interprets its instructions, on a machine that others use too.
const guestPatience = 15 * time.Minute

// guestMemory is a guest's in MiB: fio and the 60 libraries of its engines, 80 MB, lie in it twice while it boots.
const guestMemory = 512

// machine is a guest under test.
type machine struct {
	*vm.VM
	*rig
	ctx context.Context
}

// guest starts a guest with the kernel's own driver.
func (r *rig) guest(name string) *machine {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), guestPatience)
	r.t.Cleanup(cancel)
	v := r.boot(name)
	if v == nil {
		r.t.FailNow()
	}
	return &machine{v, r, ctx}
}

// need skips where there are no tools for guests.
func need(t *testing.T) *vm.Tools {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the guest is amd64's, as its tools are")
	}
	tools, err := vm.Find()
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return tools
}

// boot starts a guest; nil: it could not. It may be called from any goroutine.
func (r *rig) boot(name string) *vm.VM {
	ctx, cancel := context.WithTimeout(r.t.Context(), guestPatience)
	defer cancel()
	dir := filepath.Join(r.dir, name)
	err := os.Mkdir(dir, 0o700)
	var fio string
	if err == nil {
		fio, err = exec.LookPath("fio")
	}
	var v *vm.VM
	if err == nil {
		v, err = r.tools.Start(ctx, vm.Config{Dir: dir, Memory: guestMemory, Modules: []string{"nvme", "crc32c_generic", "ext4", "nbd", "virtio_net"}, Programs: []string{"usr/sbin/nvme", fio},
			Args: []string{"-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net"}, Append: "nvme_core.io_timeout=20 nvme_core.admin_timeout=40"})
	}
	if err != nil {
		r.t.Error(err)
		return nil
	}
	r.t.Cleanup(func() {
		if r.t.Failed() {
			r.t.Log(v.Log())
		}
		v.Close()
	})
	return v
}

// run runs commands in the guest.
func (m *machine) run(commands ...string) (out string) {
	m.t.Helper()
	for _, c := range commands {
		var err error
		if out, err = m.Run(m.ctx, c); err != nil {
			m.t.Fatal(err)
		}
	}
	return out
}

// plug hot-adds the drive at a socket, and waits until the guest has its block device.
func (m *machine) plug(bus, socket, dev string) {
	m.t.Helper()
	if err := m.Plug(m.ctx, bus+"disk", bus, socket); err != nil {
		m.t.Fatal(err)
	}
	m.run(fmt.Sprintf("while ! test -b /dev/%s; do usleep 20000; done", dev))
}

func (m *machine) unplug(bus, dev string) {
	m.t.Helper()
	if err := m.Unplug(m.ctx, bus+"disk"); err != nil {
		m.t.Fatal(err)
	}
	m.run(fmt.Sprintf("while test -b /dev/%s; do usleep 20000; done", dev))
}

// lend serves a drive to guests at a socket.
func (r *rig) lend(name string, cfg host.Config) (socket string, d *host.Lease) {
	r.t.Helper()
	d, err := r.client("borrower").BorrowLease(r.ctx(), lenderName, driveName, cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { d.Close(context.WithoutCancel(r.t.Context())) })
	socket = filepath.Join(r.dir, name+".vfu")
	l, err := vfiouser.Listen(socket)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- guest.Serve(ctx, slogTo(r.t), l, d) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && d.Err() == nil {
			r.t.Error(err)
		}
	})
	return socket, d
}

// TestGuest: the kernel of a stock guest takes a borrowed drive for an NVMe drive of its own. What it writes is in the lender's file, and it reads what is there; it lets go of
// the drive and has it again. Over shm the lender's engine works in the guest's memory, over tcp one beside the guest does.
func TestGuest(t *testing.T) {
	if testing.Short() {
		t.Skip("a guest takes half a minute, and longer under the race detector")
	}
	other := make(chan *vm.VM, 1)
	first := newRig(t, "shm")
	first.tools = need(t)
	go func() { other <- first.boot("other") }()
	m := first.guest("vm")
	for _, scheme := range schemes {
		t.Run(scheme, func(t *testing.T) {
			r := newRig(t, scheme)
			want := random(7, driveBytes)
			if err := os.WriteFile(r.file, want, 0o600); err != nil {
				t.Fatal(err)
			}
			r.node("")
			socket, _ := r.lend("g", host.Config{Mode: device.Exclusive})
			m := &machine{m.VM, r, m.ctx}
			m.plug("rp1", socket, "nvme0n1")
			m.content(want)
			m.tools()
			m.fio()
			if l := r.lease(); (l.Queues > 0 && l.Windows > 2) != (scheme == "shm") { // far: a window for each area of the guest's memory, and one for the bells
				t.Errorf("the lender has %d queues and %d windows", l.Queues, l.Windows)
			}
			m.unplug("rp1", "nvme0n1")
			r.eventually("the lender has nothing of the guest", func() bool { l := r.lease(); return scheme == "tcp" || l.Queues == 0 && l.Windows == 0 })
			r.host("mkfs.ext4", "-q", "-F", r.file)
			m.plug("rp1", socket, "nvme0n1")
			m.run("mount -t ext4 /dev/nvme0n1 /mnt", "seq 200000 > /mnt/numbers; cp /mnt/numbers /mnt/more", "umount /mnt")
			m.unplug("rp1", "nvme0n1")
			r.host("e2fsck", "-n", "-f", r.file)
			m.plug("rp1", socket, "nvme0n1")
			m.run("mount -t ext4 /dev/nvme0n1 /mnt", "seq 200000 | cmp - /mnt/more && cmp /mnt/numbers /mnt/more", "umount /mnt")
			m.unplug("rp1", "nvme0n1")
		})
	}
	t.Run("nbd", func(t *testing.T) { testGuestNBD(t, m.VM, m.ctx) })
	t.Run("two guests", func(t *testing.T) { testTwoGuests(t, m.ctx, m.VM, <-other) })
	t.Run("two guests' worth", func(t *testing.T) { testTwoLeases(t, m.VM, m.ctx) })
	t.Run("lender killed", func(t *testing.T) { testGuestLenderKilled(t, m.VM, m.ctx) })
}

// fioVerify has fio write blocks of a part of the drive in any order, read them and hold them against what it wrote. It ends with an error where one differs.
func fioVerify(offset, size int, more string) string {
	return fmt.Sprintf("cd /tmp && fio --name=verify --filename=/dev/nvme0n1 --offset=%d --size=%d --rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=8 --verify=crc32c --verify_fatal=1 --thread --minimal %s >/tmp/fio 2>&1 || { tail -n 5 /tmp/fio; false; }", offset, size, more)
}

// fio has fio verify what it wrote to the whole drive, and find the one byte that the lender's file is given afterwards.
func (m *machine) fio() {
	m.t.Helper()
	m.run(fioVerify(0, driveBytes, ""), fioVerify(0, driveBytes, "--verify_only"))
	f, err := os.OpenFile(m.file, os.O_RDWR, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	defer f.Close()
	b := []byte{0}
	const at = driveBytes/2 + 1000
	if _, err := f.ReadAt(b, at); err != nil {
		m.t.Fatal(err)
	}
	b[0]++
	if _, err := f.WriteAt(b, at); err != nil {
		m.t.Fatal(err)
	}
	if out, err := m.Run(m.ctx, fioVerify(0, driveBytes, "--verify_only")); err == nil || !strings.Contains(out+err.Error(), "verify") {
		m.t.Errorf("fio does not see a byte that was changed: %s, %v", out, err)
	}
}

// tools has nvme-cli look at the drive.
func (m *machine) tools() {
	m.t.Helper()
	for _, c := range []struct{ command, says string }{
		{"nvme list", "wherry " + driveName},
		{"nvme id-ctrl /dev/nvme0", "wherry " + driveName},
		{"nvme id-ns /dev/nvme0n1", fmt.Sprintf("nsze    : %#x", driveBytes/512)},
		{"nvme flush /dev/nvme0n1", ""},
		{"nvme read /dev/nvme0n1 -s 8 -c 7 -z 4096 -d /tmp/eight; dd if=/dev/nvme0n1 bs=512 skip=8 count=8 | cmp - /tmp/eight", ""},
		{"nvme read /dev/nvme0n1 -s " + fmt.Sprint(driveBytes/512) + " -c 7 -z 4096 -d /tmp/none && false || true", "LBA Out of Range"},
	} {
		if out := m.run(c.command); !strings.Contains(strings.ToLower(out), strings.ToLower(c.says)) {
			m.t.Errorf("%s: %s", c.command, out)
		}
	}
}

// testGuestNBD: the kernel's own client of NBD has a drive, by a network.
func testGuestNBD(t *testing.T, v *vm.VM, ctx context.Context) {
	r := newRig(t, "shm")
	want := random(8, driveBytes)
	if err := os.WriteFile(r.file, want, 0o600); err != nil {
		t.Fatal(err)
	}
	r.node("")
	url, _, _ := r.front(host.Config{Mode: device.Exclusive})
	_, port, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(url, "nbd://"), "/"+driveName), ":")
	m := &machine{v, r, ctx}
	m.run("ip addr add 10.0.2.15/24 dev eth0 && ip link set eth0 up", "nbd-client -N "+driveName+" 10.0.2.2 "+port+" /dev/nbd0",
		`while test "$(head -c 4096 /dev/nbd0 2>/dev/null | wc -c)" != 4096; do usleep 20000; done`) // nbd-client returns before the drive is there
	if got := m.run("sha256sum < /dev/nbd0"); !strings.HasPrefix(got, fmt.Sprintf("%x", sha256.Sum256(want))) {
		t.Errorf("the guest reads other bytes: %s", got)
	}
	m.run("dd if=/dev/nbd0 of=/tmp/some bs=64k count=16 skip=100", "dd if=/tmp/some of=/dev/nbd0 bs=4k conv=fsync")
	copy(want, want[100*64<<10:][:16*64<<10])
	r.same("nbd.ko to the drive", r.file, want)
	m.run("nbd-client -d /dev/nbd0")
}

// testTwoGuests: two guests and a Go program have all of one drive at once. Each writes a part, and reads what the others wrote, again and again while borrowers of the rest are killed.
func testTwoGuests(t *testing.T, ctx context.Context, guests ...*vm.VM) {
	r := newRig(t, "shm")
	r.node("")
	const part = driveBytes / 4
	var all []*machine
	enough, stop := r.killer(3*part, part)
	for i, v := range guests {
		if v == nil {
			t.Fatal("there is one guest only")
		}
		socket, _ := r.lend(fmt.Sprint("g", i), host.Config{Mode: device.Shared, Size: 3 * part})
		m := &machine{v, r, ctx}
		m.plug("rp1", socket, "nvme0n1")
		all = append(all, m)
	}
	d := r.borrow(r.client("other"), host.Config{Mode: device.Shared, Size: 3 * part})
	for turn, more := uint64(0), true; more && !t.Failed(); turn++ {
		verifyAll(t, all, part)
		threeWrite(t, d, random(11+turn, part), all)
		select {
		case <-enough:
			more = false
		default:
		}
	}
	for _, m := range all {
		m.unplug("rp1", "nvme0n1")
	}
	stop()
}

// verifyAll has fio at work in each guest at once, in its part.
func verifyAll(t *testing.T, guests []*machine, part int) {
	t.Helper()
	var group sync.WaitGroup
	for i, m := range guests {
		group.Go(func() {
			if _, err := m.Run(m.ctx, fioVerify(i*part, part, "")); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

// threeWrite has each guest write a part of what all have, and a Go program the last. Everybody reads the same then.
func threeWrite(t *testing.T, d *host.Drive, own []byte, guests []*machine) {
	t.Helper()
	var group sync.WaitGroup
	part := len(own)
	parts := part >> 16
	for i, m := range guests {
		group.Go(func() {
			if _, err := m.Run(m.ctx, fmt.Sprintf("dd if=/dev/urandom of=/tmp/own bs=64k count=%d && dd if=/tmp/own of=/dev/nvme0n1 bs=64k seek=%d conv=fsync", parts, i*parts)); err != nil {
				t.Error(err)
			}
		})
	}
	if err := d.WriteAt(t.Context(), own, uint64(2*part)); err != nil {
		t.Error(err)
	}
	group.Wait()
	got := make([]byte, 3*part)
	if err := d.ReadAt(t.Context(), got, 0); err != nil || !bytes.Equal(got[2*part:], own) {
		t.Errorf("the Go program reads other bytes: %v", err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(got))
	for i, m := range guests {
		if out := m.run(fmt.Sprintf("dd if=/dev/nvme0n1 bs=64k count=%d iflag=direct | sha256sum", 3*parts)); !strings.Contains(out, sum) {
			t.Errorf("guest %d reads others than the Go program: %s", i, out)
		}
		if out := m.run("sha256sum < /tmp/own"); !strings.HasPrefix(out, fmt.Sprintf("%x", sha256.Sum256(got[i*part:][:part]))) {
			t.Errorf("guest %d's part has other bytes than it wrote", i)
		}
	}
}

// testTwoLeases: one guest has two parts of a drive, a Go program a third. Resets of one controller again and again disturb neither what the others do nor what is on it.
func testTwoLeases(t *testing.T, v *vm.VM, ctx context.Context) {
	r := newRig(t, "shm")
	r.node("")
	const part = driveBytes / 4
	one, _ := r.lend("one", host.Config{Mode: device.Exclusive, Size: part})
	two, _ := r.lend("two", host.Config{Mode: device.Exclusive, Offset: part, Size: part})
	third := r.borrow(r.client("other"), host.Config{Mode: device.Exclusive, Offset: 2 * part})
	m := &machine{v, r, ctx}
	m.plug("rp1", one, "nvme0n1")
	m.plug("rp2", two, "nvme1n1")
	m.run("dd if=/dev/urandom of=/tmp/a bs=64k count=64", "dd if=/dev/urandom of=/tmp/b bs=64k count=64", "rm -f /tmp/reset")
	m.run("(for i in 1 2 3 4 5 6; do echo 1 > /sys/class/nvme/nvme0/reset_controller; done; echo over > /tmp/reset) &")
	m.run("for i in 1 2; do dd if=/tmp/a of=/dev/nvme0n1 bs=32k conv=fsync && dd if=/tmp/b of=/dev/nvme1n1 bs=32k conv=fsync || exit 1; done")
	own := random(9, 2*part)
	if err := third.WriteAt(ctx, own, 0); err != nil {
		t.Fatal(err)
	}
	m.run("while ! test -f /tmp/reset; do usleep 20000; done", "cmp /tmp/a /dev/nvme0n1 && cmp /tmp/b /dev/nvme1n1")
	sums := m.run("cat /tmp/a /tmp/b | sha256sum")
	got, err := os.ReadFile(r.file)
	if err != nil || !strings.HasPrefix(sums, fmt.Sprintf("%x", sha256.Sum256(got[:2*part]))) || !bytes.Equal(got[2*part:], own) {
		t.Errorf("the lender's file has other bytes: %v", err)
	}
	m.unplug("rp1", "nvme0n1")
	m.unplug("rp2", "nvme1n1")
}

// testGuestLenderKilled: a guest whose lender is killed gets I/O errors, lets go of the drive, and has another lender's.
func testGuestLenderKilled(t *testing.T, v *vm.VM, ctx context.Context) {
	r := newRig(t, "shm")
	lender := r.process("run-node", r.addr, r.tokens, r.file)
	r.grant("*", "rw")
	socket, lease := r.lend("k", host.Config{Mode: device.Exclusive})
	m := &machine{v, r, ctx}
	m.plug("rp1", socket, "nvme0n1")
	m.run("echo 2000 > /sys/block/nvme0n1/queue/io_timeout", "dd if=/dev/nvme0n1 of=/dev/null bs=64k count=16")
	lender.Process.Kill()
	lender.Wait()
	if out, err := m.Run(ctx, "dd if=/dev/nvme0n1 of=/dev/null bs=64k skip=100 count=16"); err == nil {
		t.Errorf("a lost drive is read: %s", out)
	}
	r.eventually("the lease is over", func() bool { return lease.Err() != nil })
	m.unplug("rp1", "nvme0n1")

	again := newRig(t, "shm")
	again.node("")
	socket, _ = again.lend("k", host.Config{Mode: device.Exclusive})
	m = &machine{v, again, ctx}
	m.plug("rp1", socket, "nvme0n1")
	m.run("dd if=/dev/urandom of=/dev/nvme0n1 bs=64k count=16 conv=fsync")
	m.unplug("rp1", "nvme0n1")
}

// content compares what the guest has with what the lender's file has, and has the guest write some of it.
func (m *machine) content(want []byte) {
	m.t.Helper()
	if got := m.run("blockdev --getsize64 /dev/nvme0n1"); got != fmt.Sprint(driveBytes) {
		m.t.Errorf("the guest sees %s bytes", got)
	}
	if got := m.run("sha256sum < /dev/nvme0n1"); !strings.HasPrefix(got, fmt.Sprintf("%x", sha256.Sum256(want))) {
		m.t.Errorf("the guest reads other bytes: %s", got)
	}
	if got := m.run("cat /sys/block/nvme0n1/device/model"); got != "wherry "+driveName {
		m.t.Errorf("its model is %q", got)
	}
	m.run("dd if=/dev/nvme0n1 of=/tmp/some bs=64k count=16 skip=100", "dd if=/tmp/some of=/dev/nvme0n1 bs=4k conv=fsync")
	copy(want, want[100*64<<10:][:16*64<<10])
	if got, err := os.ReadFile(m.file); err != nil || !bytes.Equal(got, want) {
		m.t.Fatalf("the lender's file has other bytes: %v", err)
	}
}

// host runs a program beside the lender.
func (r *rig) host(name string, args ...string) {
	r.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		r.t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

// lease is the drive's only one, as its lender sees it.
func (r *rig) lease() device.LeaseInfo {
	r.t.Helper()
	info, err := r.client("borrower").Device(r.ctx(), lenderName, driveName)
	if err != nil || len(info.Leases) != 1 {
		r.t.Fatalf("leases: %+v, %v", info, err)
	}
	return info.Leases[0]
}
