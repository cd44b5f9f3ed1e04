package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ipTime bounds one ip command.
const ipTime = 20 * time.Second

// Enter runs a command in namespaces of its own (network, mounts, processes) and waits for its end. When it ends, however it does, its
// processes end too, and its namespaces are gone. Root is needed.
func Enter(ctx context.Context, cmd *exec.Cmd) error {
	if os.Getuid() != 0 {
		return errors.New("network namespaces need root: run it as root, or in a container with CAP_SYS_ADMIN and CAP_NET_ADMIN")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return fmt.Errorf("the command ip makes the network: install iproute2: %w", err)
	}
	runtime.LockOSThread() // Pdeathsig goes by the thread
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("namespaces of its own (CAP_SYS_ADMIN is needed): %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	return cmd.Wait()
}

// network is a bridge in this process's namespace, and a namespace for each node.
type network struct {
	netem bool // this kernel delays and loses packets
}

// bridge is where all nodes are connected; far is where a part of them is during a partition.
const (
	bridge = "br0"
	far    = "br1"
)

func addrOf(i int) string { return fmt.Sprintf("10.77.0.%d", i+1) }
func nameSpace(i int) string {
	return fmt.Sprintf("node%d", i)
}

// newNetwork makes namespaces for n nodes; this process is on the same bridge.
func newNetwork(ctx context.Context, n int) (*network, error) {
	const noexec = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	for _, m := range []struct {
		from, at, kind string
		flags          uintptr
	}{{"", "/", "", unix.MS_REC | unix.MS_PRIVATE}, {"proc", "/proc", "proc", noexec}, {"none", "/run/netns", "tmpfs", noexec}} {
		if m.kind != "" {
			if err := os.MkdirAll(m.at, 0o755); err != nil {
				return nil, err
			}
		}
		if err := unix.Mount(m.from, m.at, m.kind, m.flags, ""); err != nil {
			return nil, fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	lines := []string{"link set lo up", "link add " + bridge + " type bridge", "link add " + far + " type bridge", "addr add 10.77.0.254/24 dev " + bridge,
		"link set " + bridge + " up", "link set " + far + " up"}
	for i := range n {
		ns := nameSpace(i)
		lines = append(lines, "netns add "+ns,
			fmt.Sprintf("link add p%d type veth peer name eth0 netns %s", i, ns),
			fmt.Sprintf("link set p%d master %s up", i, bridge),
			fmt.Sprintf("-n %s addr add %s/24 dev eth0", ns, addrOf(i)),
			fmt.Sprintf("-n %s link set eth0 up", ns),
			fmt.Sprintf("-n %s link set lo up", ns))
	}
	for _, line := range lines {
		if err := ip(ctx, line); err != nil {
			return nil, err
		}
	}
	w := &network{netem: tc(ctx, "qdisc add dev p0 root netem delay 1ms") == nil}
	if w.netem {
		return w, tc(ctx, "qdisc del dev p0 root")
	}
	return w, nil
}

func ip(ctx context.Context, line string) error { return command(ctx, "ip", line) }
func tc(ctx context.Context, line string) error { return command(ctx, "tc", line) }

func command(ctx context.Context, name, line string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ipTime)
	defer cancel()
	if out, err := exec.CommandContext(ctx, name, strings.Fields(line)...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, line, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// cut takes nodes to the far bridge: they see each other and no other node.
func (w *network) cut(ctx context.Context, nodes ...int) error {
	return w.each(ctx, nodes, "link set p%d master "+far)
}

// join brings them back.
func (w *network) join(ctx context.Context, nodes ...int) error {
	return w.each(ctx, nodes, "link set p%d master "+bridge)
}

// apart keeps nodes from each other, while everybody else sees them.
func (w *network) apart(ctx context.Context, nodes ...int) error {
	return w.each(ctx, nodes, "link set dev p%d type bridge_slave isolated on")
}

func (w *network) together(ctx context.Context, nodes ...int) error {
	return w.each(ctx, nodes, "link set dev p%d type bridge_slave isolated off")
}

func (w *network) each(ctx context.Context, nodes []int, format string) error {
	var errs []error
	for _, i := range nodes {
		errs = append(errs, ip(ctx, fmt.Sprintf(format, i)))
	}
	return errors.Join(errs...)
}
