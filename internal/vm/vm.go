package vm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Tools are QEMU and a kernel.
type Tools struct {
	dir     string
	kernel  string
	tree    string // of modules
	busybox string
}

// folder is where scripts/folder-tools.sh guest puts them.
const folder = "wherry-test/guest-2"

// Find finds the tools.
func Find() (*Tools, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	t := &Tools{dir: filepath.Join(cache, folder)}
	kernels, _ := filepath.Glob(filepath.Join(t.dir, "kernel/boot/vmlinuz-*"))
	trees, _ := filepath.Glob(filepath.Join(t.dir, "kernel/usr/lib/modules/*"))
	if len(kernels) == 0 || len(trees) == 0 {
		return nil, fmt.Errorf("there is no QEMU and kernel in %s: run scripts/folder-tools.sh guest", t.dir)
	}
	t.kernel, t.tree, t.busybox = kernels[0], trees[0], filepath.Join(t.dir, "qemu/usr/bin/busybox")
	return t, nil
}

// qemu is QEMU's command line: it runs with the libraries that came with it, by their own loader.
func (t *Tools) qemu(ctx context.Context, args ...string) *exec.Cmd {
	root := filepath.Join(t.dir, "qemu")
	lib := filepath.Join(root, "usr/lib/x86_64-linux-gnu")
	all := append([]string{"--library-path", lib, filepath.Join(root, "usr/bin/qemu-system-x86_64"),
		"-L", filepath.Join(root, "usr/share/qemu"), "-L", filepath.Join(root, "usr/share/seabios")}, args...)
	return exec.CommandContext(ctx, filepath.Join(root, "usr/lib64/ld-linux-x86-64.so.2"), all...)
}

// Config says what a guest is.
type Config struct {
	Dir     string // for sockets and files: a new folder
	Memory  int    // MiB; 0: 192
	CPUs    int    // 0: 1
	Modules []string
	// Programs are installed in the guest's /bin: this machine's by their paths, or the tools', as "usr/sbin/nvme". Libraries that they need are the tools', or this machine's where the tools have none.
	Programs []string
	Args     []string // more of QEMU's
	Append   string   // more of the kernel's command line
}

// VM is a guest that runs.
type VM struct {
	cmd  *exec.Cmd
	dir  string
	line net.Conn // the guest's shell
	in   *bufio.Reader
	n    int
	over chan struct{} // closed when QEMU has ended
	err  error         // of QEMU, once it is over
	said bytes.Buffer  // by QEMU

	mu     sync.Mutex
	qmp    net.Conn
	dec    *json.Decoder
	events []Event
}

// Event is what QEMU tells unasked.
type Event struct {
	Event string          `json:"event"`
	Data  json.RawMessage `json:"data"`
}

// Start starts a guest and waits for its shell.
func (t *Tools) Start(ctx context.Context, cfg Config) (*VM, error) {
	if cfg.Memory == 0 {
		cfg.Memory = 192
	}
	if cfg.CPUs == 0 {
		cfg.CPUs = 1
	}
	image, err := t.initramfs(&cfg)
	if err != nil {
		return nil, err
	}
	initrd := filepath.Join(cfg.Dir, "initrd")
	if err := os.WriteFile(initrd, image, 0o600); err != nil {
		return nil, err
	}
	path := func(name string) string { return filepath.Join(cfg.Dir, name) }
	args := append([]string{"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", fmt.Sprint(cfg.CPUs), "-m", fmt.Sprint(cfg.Memory),
		"-object", fmt.Sprintf("memory-backend-memfd,id=m,size=%dM,share=on", cfg.Memory), "-machine", "q35,memory-backend=m", "-no-reboot", "-nodefaults", "-no-user-config", "-display", "none",
		"-serial", "file:" + path("console"), "-serial", "unix:" + path("shell") + ",server=on,wait=off", "-qmp", "unix:" + path("qmp") + ",server=on,wait=off",
		"-device", "pcie-root-port,id=rp1,chassis=1,slot=1", "-device", "pcie-root-port,id=rp2,chassis=2,slot=2",
		"-kernel", t.kernel, "-initrd", initrd, "-append", "console=ttyS0 quiet panic=1 init=/init tsc=reliable no_timer_check " + cfg.Append}, cfg.Args...)
	v := &VM{dir: cfg.Dir, over: make(chan struct{})}
	v.cmd = t.qemu(context.Background(), args...)
	v.cmd.Stdout, v.cmd.Stderr = &v.said, &v.said
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := v.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		v.err = v.cmd.Wait()
		close(v.over)
	}()
	if err := v.greet(ctx, path("qmp"), path("shell")); err != nil {
		v.Close()
		return nil, fmt.Errorf("%w\n%s", err, v.Log())
	}
	return v, nil
}

// greet connects to QEMU and to the shell.
func (v *VM) greet(ctx context.Context, qmp, shell string) (err error) {
	if v.qmp, err = v.dial(ctx, qmp); err != nil {
		return err
	}
	v.dec = json.NewDecoder(v.qmp)
	if _, err := v.QMP(ctx, "qmp_capabilities", nil); err != nil {
		return err
	}
	if v.line, err = v.dial(ctx, shell); err != nil {
		return err
	}
	v.in = bufio.NewReader(v.line)
	defer context.AfterFunc(ctx, func() { v.line.SetReadDeadline(time.Unix(1, 0)) })()
	for { // what is sent before the shell reads would be lost
		text, err := v.in.ReadString('\n')
		if err != nil {
			return fmt.Errorf("the guest does not come up: %w", err)
		}
		if strings.TrimSpace(text) == readyMark {
			return nil
		}
	}
}

func (v *VM) ended() bool {
	select {
	case <-v.over:
		return true
	default:
		return false
	}
}

// dial waits for QEMU's socket.
func (v *VM) dial(ctx context.Context, path string) (net.Conn, error) {
	for {
		c, err := net.Dial("unix", path)
		if err == nil {
			return c, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-v.over:
			return nil, fmt.Errorf("QEMU has ended: %v", v.err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// ExitError is a command's status in the guest.
type ExitError struct {
	Command string
	Status  int
	Output  string
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("in the guest: %s: status %d: %s", e.Command, e.Status, e.Output)
}

// Run runs a command in the guest's shell and returns what it printed. One at a time.
func (v *VM) Run(ctx context.Context, command string) (string, error) {
	end, err := v.Begin(ctx, command, "")
	if err != nil {
		return "", err
	}
	return end()
}

// Begin starts a command in the guest's shell, and returns once it has printed said as a line; without one, at once. end must be called before another command is
// started: it waits for the command's end, and returns what it printed after said.
func (v *VM) Begin(ctx context.Context, command, said string) (end func() (string, error), err error) {
	v.n++
	mark := fmt.Sprintf("=%d=", v.n)
	v.line.SetDeadline(time.Time{})
	quit := context.AfterFunc(ctx, func() { v.line.SetDeadline(time.Unix(1, 0)) }) // of writes too: what QEMU does not take would be waited for by nudge, for ever
	calm := v.nudge()
	stop := func() {
		calm()
		quit()
	}
	_, err = fmt.Fprintf(v.line, "\n{ %s\n} </dev/null 2>&1; s=$?; echo; echo %s$s\n", command, mark)
	if err == nil && said != "" {
		_, err = v.hear(ctx, command, said, mark)
	}
	if err != nil {
		stop()
		return nil, err
	}
	return func() (string, error) {
		defer stop()
		return v.hear(ctx, command, "", mark)
	}, nil
}

// hear reads what a command prints, up to the line said, or to the command's end, whose line begins with mark.
func (v *VM) hear(ctx context.Context, command, said, mark string) (string, error) {
	var out strings.Builder
	for {
		text, err := v.in.ReadString('\n')
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return out.String(), fmt.Errorf("in the guest: %s: %w", command, err)
		}
		text = strings.TrimRight(text, "\r\n")
		rest, over := strings.CutPrefix(text, mark)
		got := strings.TrimSpace(out.String())
		switch {
		case over:
			status := 0
			fmt.Sscan(rest, &status)
			if status != 0 || said != "" {
				return got, &ExitError{command, status, got}
			}
			return got, nil
		case said != "" && text == said:
			return got, nil
		}
		out.WriteString(text + "\n")
	}
}

// nudge sends empty lines until it is stopped: QEMU's serial line has been seen to hold back the last bytes until more come.
func (v *VM) nudge() (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-over:
				return
			case <-time.After(200 * time.Millisecond):
				v.line.Write([]byte("\n"))
			}
		}
	}()
	return func() {
		close(over)
		<-done
	}
}

// QMP gives QEMU a command and returns its answer.
func (v *VM) QMP(ctx context.Context, command string, args any) (json.RawMessage, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	req := map[string]any{"execute": command}
	if args != nil {
		req["arguments"] = args
	}
	b, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	if _, err := v.qmp.Write(append(b, '\n')); err != nil {
		return nil, err
	}
	for {
		m, err := v.message(ctx)
		if err != nil {
			return nil, fmt.Errorf("QMP %s: %w", command, err)
		}
		if m.Error != nil {
			return nil, fmt.Errorf("QMP %s: %s", command, m.Error.Desc)
		}
		if m.Return != nil {
			return m.Return, nil
		}
	}
}

type message struct {
	Event
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Desc string `json:"desc"`
	} `json:"error"`
}

// message reads one; events are kept. mu is held.
func (v *VM) message(ctx context.Context) (m message, err error) {
	defer context.AfterFunc(ctx, func() { v.qmp.SetReadDeadline(time.Unix(1, 0)) })()
	v.qmp.SetReadDeadline(time.Time{})
	if err = v.dec.Decode(&m); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return m, err
	}
	if m.Event.Event != "" {
		v.events = append(v.events, m.Event)
	}
	return m, nil
}

// Await waits for an event that match takes, and forgets it and those before.
func (v *VM) Await(ctx context.Context, match func(Event) bool) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for {
		for i, e := range v.events {
			if match(e) {
				v.events = v.events[i+1:]
				return nil
			}
		}
		v.events = nil
		if _, err := v.message(ctx); err != nil {
			return err
		}
	}
}

// Plug gives the guest a device by vfio-user, at the root port bus.
func (v *VM) Plug(ctx context.Context, id, bus, socket string) error {
	_, err := v.QMP(ctx, "device_add", map[string]any{"driver": "vfio-user-pci", "id": id, "bus": bus, "socket": map[string]any{"type": "unix", "path": socket}})
	return err
}

// busyTime is how long a guest's slot may blink before a device is asked for again: PCIe gives it five seconds.
const busyTime = 200 * time.Millisecond

// Unplug takes a device back, and waits until the guest has let go of it. While the guest is at another change of the slot, QEMU refuses; it is asked again then.
func (v *VM) Unplug(ctx context.Context, id string) error {
	for {
		_, err := v.QMP(ctx, "device_del", map[string]any{"id": id})
		if err == nil {
			break
		}
		if !busy(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(busyTime):
		}
	}
	return v.Await(ctx, func(e Event) bool {
		var data struct {
			Device string `json:"device"`
		}
		json.Unmarshal(e.Data, &data)
		return e.Event == "DEVICE_DELETED" && data.Device == id
	})
}

// busy reports whether QEMU refuses as the guest's slot is being changed.
func busy(err error) bool { return strings.Contains(err.Error(), "guest is busy") }

// Log is what the guest's console and QEMU have said: the end of it.
func (v *VM) Log() string {
	b, _ := os.ReadFile(filepath.Join(v.dir, "console"))
	if v.ended() {
		b = append(b, v.said.Bytes()...)
	}
	if len(b) > 8<<10 {
		b = b[len(b)-8<<10:]
	}
	return string(b)
}

// Close ends the guest at once.
func (v *VM) Close() error {
	v.cmd.Process.Kill()
	<-v.over
	var errs error
	for _, c := range []io.Closer{v.qmp, v.line} {
		if c != nil && c != net.Conn(nil) {
			errs = errors.Join(errs, c.Close())
		}
	}
	return errs
}
