package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme/guest"
	"github.com/wherry-fabric/wherry/device/nvme/host"
	"github.com/wherry-fabric/wherry/device/vfiouser"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/uring"
	"github.com/wherry-fabric/wherry/internal/vm"
)

const (
	// guestReader is the role of the program that reads a drive in a guest.
	guestReader = "guest reader"
	// plugTurns is how often the drive is plugged in and taken back.
	plugTurns = 10
	// guestMemory is the guest's in MiB: this program lies in it twice while it boots.
	guestMemory = 768
	// guestTime bounds all that is done with a guest, whose instructions QEMU interprets.
	guestTime = 5 * time.Minute
)

// Models that guests see of drives.
const (
	ownModel   = "wherry " + driveName
	nvmetModel = "Linux"
	qemuModel  = "QEMU NVMe Ctrl"
)

// driveGuest plugs a borrowed drive into a virtual machine, and measures how long that takes and how long to take it back; and what an NBD client and the guest cost while they do nothing; then reads in the guest, driveDepth of them under
// way, in turns with those of an nvmet there by nvme-tcp and of QEMU's own NVMe drive.
func (c *Config) driveGuest(ctx context.Context, spec role, dir string) (*Result, error) {
	tools, err := vm.Find()
	if err != nil {
		return nil, fmt.Errorf("bench: no virtual machine: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, guestTime)
	defer cancel()
	w, crew, err := c.borrower(ctx, spec, dir, "front")
	if err != nil {
		return nil, err
	}
	defer crew.end()
	defer w.close()
	socket, stop, err := w.serveGuest(dir)
	if err != nil {
		return nil, err
	}
	defer stop()
	file := filepath.Join(dir, "qemu.img")
	if err := os.WriteFile(file, make([]byte, verbSpan), 0o600); err != nil {
		return nil, err
	}
	if c.Progress != nil {
		c.Progress("the guest starts", 0)
	}
	v, err := tools.Start(ctx, vm.Config{Dir: dir, Memory: guestMemory, Modules: []string{"nvme", "nvmet", "nvmet-tcp", "nvme-tcp", "crc32c_generic"}, Programs: []string{"usr/sbin/nvme", c.Command[0]}})
	if err != nil {
		return nil, err
	}
	defer v.Close()
	m := &guestBench{VM: v, c: c, r: &Result{}, program: "/bin/" + filepath.Base(c.Command[0]) + " " + strings.Join(c.Command[1:], " ")}
	hostInfo(m.r, c)
	m.r.Set("clock_ns", clockCost())
	if err := errors.Join(m.plugs(ctx, socket), ctx.Err()); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, v.Log())
	}
	share, err := w.idle(dir, crew.servers[0].Pid())
	if err != nil {
		return nil, err
	}
	m.r.Set("idle_cpu_percent", share*100)
	if err := m.reads(ctx, file); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, v.Log())
	}
	return m.r, m.r.Err()
}

// serveGuest serves the drive at a socket.
func (c *client) serveGuest(dir string) (socket string, stop func() error, err error) {
	asker := control.NewAsker(c.station.rpc, func(context.Context, string) (*fabric.Endpoint, error) { return c.eps[0], nil })
	lease, err := host.Borrow(c.ctx, host.Config{Element: c.el, Asker: asker, Node: c.spec.Servers[0].Name, Drive: driveName, Mode: device.Shared}) // another is served by NBD
	if err != nil {
		return "", nil, err
	}
	back := func() error { return lease.Close(context.WithoutCancel(c.ctx)) }
	socket = filepath.Join(dir, "guest.sock")
	l, err := vfiouser.Listen(socket)
	if err != nil {
		return "", nil, errors.Join(err, back())
	}
	ctx, cancel := context.WithCancel(c.ctx)
	served := make(chan error, 1)
	go func() { served <- guest.Serve(ctx, slog.New(slog.DiscardHandler), l, lease) }()
	return socket, func() error {
		cancel()
		return errors.Join(<-served, back())
	}, nil
}

// guestBench is a guest that is measured.
type guestBench struct {
	*vm.VM
	c       *Config
	r       *Result
	program string // this one, in the guest
}

// present is a condition of the guest's shell: it has a drive of the model. Of a path to a shared one, as nvme1c1n1, there is no device.
func present(model string) string {
	return fmt.Sprintf("grep -qs '%s' /sys/block/nvme?n1/device/model", model)
}

// plugs measures how long it takes until the guest has the drive, and until it has let go. The drive is left plugged in.
func (m *guestBench) plugs(ctx context.Context, socket string) error {
	var add, back samples
	turns := m.c.turns(plugTurns)
	for i := range turns + 1 { // the last stays
		if m.c.Progress != nil {
			m.c.Progress("plugging in and out", float64(i)/float64(turns))
		}
		end, err := m.Begin(ctx, "echo looks; while ! "+present(ownModel)+"; do usleep 1000; done", "looks")
		if err != nil {
			return err
		}
		start := time.Now()
		if err := m.Plug(ctx, "own", "rp1", socket); err != nil {
			return err
		}
		if _, err := end(); err != nil {
			return err
		}
		add = append(add, float64(time.Since(start))/float64(time.Millisecond))
		if i == turns {
			break
		}
		start = time.Now()
		if err := m.Unplug(ctx, "own"); err != nil {
			return err
		}
		back = append(back, float64(time.Since(start))/float64(time.Millisecond))
	}
	m.r.Set("hot_add_ms_p50", add.p(0.5))
	m.r.Set("return_ms_p50", back.p(0.5))
	return nil
}

// target makes an nvmet in the guest, and connects to it.
const target = `mount -t configfs none /sys/kernel/config && dd if=/dev/zero of=/tmp/target bs=1M count=%d && cd /sys/kernel/config/nvmet && mkdir -p subsystems/t/namespaces/1 ports/1 &&
echo 1 > subsystems/t/attr_allow_any_host && echo 1 > subsystems/t/namespaces/1/buffered_io && echo /tmp/target > subsystems/t/namespaces/1/device_path && echo 1 > subsystems/t/namespaces/1/enable &&
echo ipv4 > ports/1/addr_adrfam && echo tcp > ports/1/addr_trtype && echo 127.0.0.1 > ports/1/addr_traddr && echo 4420 > ports/1/addr_trsvcid && ln -s /sys/kernel/config/nvmet/subsystems/t ports/1/subsystems/t &&
nvme connect -t tcp -n t -a 127.0.0.1 -s 4420`

// reads measures reads in the guest.
func (m *guestBench) reads(ctx context.Context, file string) error {
	if _, err := m.Run(ctx, fmt.Sprintf(target, verbSpan>>20)); err != nil {
		return err
	}
	if _, err := m.QMP(ctx, "blockdev-add", map[string]any{"driver": "raw", "node-name": "other", "file": map[string]any{"driver": "file", "filename": file}}); err != nil {
		return err
	}
	if _, err := m.QMP(ctx, "device_add", map[string]any{"driver": "nvme", "id": "other", "bus": "rp2", "drive": "other", "serial": "other"}); err != nil {
		return err
	}
	models := []string{ownModel, nvmetModel, qemuModel}
	paths := make([]string, len(models))
	for i, model := range models {
		found, err := m.Run(ctx, fmt.Sprintf("while ! %s; do usleep 20000; done; for d in /sys/block/nvme?n1; do grep -q '%s' $d/device/model && echo /dev/${d##*/}; done; true", present(model), model))
		if err != nil {
			return err
		}
		paths[i] = found
		if _, err := m.Run(ctx, fmt.Sprintf("dd if=/dev/urandom of=%s bs=64k count=%d conv=fsync", found, verbSpan>>16)); err != nil { // what was never written is cheaper to read
			return err
		}
	}
	rates := make([]samples, len(models))
	for i := range m.c.turns(frontTurns) {
		if m.c.Progress != nil {
			m.c.Progress("reading", float64(i)/float64(m.c.turns(frontTurns)))
		}
		for k, path := range paths {
			rate, err := m.rate(ctx, path)
			if err != nil {
				return err
			}
			rates[k] = append(rates[k], rate)
		}
	}
	var overs [2]samples
	for i, own := range rates[0] {
		overs[0], overs[1] = append(overs[0], own/rates[1][i]), append(overs[1], own/rates[2][i])
	}
	m.r.Set("iops_32", rates[0].p(0.5))
	m.r.Set("nvmet_iops_32", rates[1].p(0.5))
	m.r.Set("qemu_iops_32", rates[2].p(0.5))
	m.r.Set("iops_32_over_nvmet", overs[0].p(0.5))
	m.r.Set("iops_32_over_qemu", overs[1].p(0.5))
	return nil
}

// rate is how many reads a second of a drive there are in the guest.
func (m *guestBench) rate(ctx context.Context, path string) (perSecond float64, err error) {
	spec, err := json.Marshal(role{Role: guestReader, Disk: path, Turn: frontTurn})
	if err != nil {
		return 0, err
	}
	out, err := m.Run(ctx, fmt.Sprintf("echo '%s' | %s", spec, m.program))
	if err != nil {
		return 0, err
	}
	if err = json.Unmarshal([]byte(out), &perSecond); err != nil || perSecond <= 0 {
		return 0, fmt.Errorf("bench: in the guest: reads of %s: %.2000q: %v", path, out, err)
	}
	return perSecond, nil
}

// runGuestReader reads a drive for a while, and says how often a second.
func runGuestReader(spec *role, w io.Writer) error {
	f, err := os.OpenFile(spec.Disk, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	ring, err := uring.New(driveDepth, -1)
	if err != nil {
		return err
	}
	defer ring.Close()
	end := time.Now().Add(spec.Turn)
	rate, err := ringReads(ring, f, verbSpan, rand.New(rand.NewPCG(1, 2)), func(int) bool { return time.Now().Before(end) })
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(rate)
}
