package devicetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme/host"
	"github.com/wherry-fabric/wherry/internal/sockdir"
	"github.com/wherry-fabric/wherry/internal/vm"
	"github.com/wherry-fabric/wherry/node"
)

// patience bounds every wait that a bug could make endless.
const patience = time.Minute

const (
	lenderName = "n1"
	driveName  = "disk0"
	driveBytes = 16 << 20
)

// TestMain runs the tests, or is a process of theirs: a node, or a borrower.
func TestMain(m *testing.M) {
	roles := map[string]func(args []string) error{"run-node": runNode, "run-borrower": runBorrower, "run-full-node": runFullNode}
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		if err := roles[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if err := sockdir.Shorten(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// runNode lends args[2] at args[0], with the tokens args[1], until SIGTERM.
func runNode(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	n, err := node.New(node.Config{Name: lenderName, Listen: args[:1], TokenFile: args[1], Token: "node", Memory: 64 << 20, Lend: []string{"nvme=" + driveName + ":" + args[2]}})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return n.Run(ctx)
}

// runBorrower writes all of its part of the drive again and again: args are the address, the tokens, offset and size.
func runBorrower(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := client.Connect(ctx, client.Config{Nodes: []cluster.Member{{Name: lenderName, Addrs: args[:1]}}, TokenFile: args[1], Token: "borrower"})
	if err != nil {
		return err
	}
	cfg := host.Config{Mode: device.Exclusive}
	fmt.Sscan(args[2], &cfg.Offset)
	fmt.Sscan(args[3], &cfg.Size)
	d, err := c.BorrowDrive(ctx, lenderName, driveName, cfg)
	for errors.Is(err, device.ErrBusy) { // commands of one that was killed are waited for
		time.Sleep(time.Millisecond)
		d, err = c.BorrowDrive(ctx, lenderName, driveName, cfg)
	}
	if err != nil {
		return err
	}
	p := make([]byte, 1<<20)
	for i := byte(1); ; i++ {
		for k := range p {
			p[k] = i
		}
		for off := uint64(0); off < d.Size(); off += uint64(len(p)) {
			if err := d.WriteAt(ctx, p, off); err != nil {
				return err
			}
			if i == 1 && off == 0 {
				fmt.Println("ready")
			}
		}
	}
}

// rig is a lender's address, its tokens and the file that it lends.
type rig struct {
	t            *testing.T
	dir          string
	addr         string
	tokens, file string
	tools        *vm.Tools // where there are guests
}

func newRig(t *testing.T, scheme string) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "wherry")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &rig{t: t, dir: dir, tokens: filepath.Join(dir, "tokens"), file: filepath.Join(dir, "disk.img"), addr: "shm://" + filepath.Join(dir, "n.sock")}
	if scheme == "tcp" {
		r.addr = "tcp://127.0.0.1:0"
	}
	var text strings.Builder
	for name, caps := range map[string]cluster.Caps{"node": cluster.CapsAll, "borrower": cluster.CapDevice, "other": cluster.CapDevice, "plain": cluster.CapRead | cluster.CapWrite, "admin": cluster.CapAdmin} {
		tok, err := cluster.NewToken(name, caps)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&text, tok.Line())
	}
	if err := os.WriteFile(r.tokens, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.file, make([]byte, driveBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

// node starts a lender in this process, and grants the drive to everybody.
func (r *rig) node(options string) {
	r.t.Helper()
	r.t.Cleanup(r.start(options))
	r.grant("*", "rw")
}

// start starts a lender in this process.
func (r *rig) start(options string) (stop func()) {
	r.t.Helper()
	n, err := node.New(node.Config{Name: lenderName, Listen: []string{r.addr}, TokenFile: r.tokens, Token: "node", Memory: 64 << 20,
		Lend: []string{"nvme=" + driveName + ":" + r.file + options}, LendGrants: filepath.Join(r.dir, "grants"), Log: slog.New(slog.NewTextHandler(r.t.Output(), nil))})
	if err != nil {
		r.t.Fatal(err)
	}
	r.addr = n.Addrs()[0]
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
	}
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *rig) client(token string) *client.Client {
	r.t.Helper()
	c, err := client.Connect(r.ctx(), client.Config{Nodes: []cluster.Member{{Name: lenderName, Addrs: []string{r.addr}}}, TokenFile: r.tokens, Token: token})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

func (r *rig) grant(to, rights string) {
	r.t.Helper()
	if err := r.client("admin").GrantDevice(r.ctx(), lenderName, driveName, to, rights); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) borrow(c *client.Client, cfg host.Config) *host.Drive {
	r.t.Helper()
	d, err := c.BorrowDrive(r.ctx(), lenderName, driveName, cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { d.Close(context.WithoutCancel(r.t.Context())) })
	return d
}

// process starts this binary in a role, and waits until it is ready.
func (r *rig) process(args ...string) *exec.Cmd {
	r.t.Helper()
	return r.processIn(nil, args...)
}

// processIn is process, with what the kernel is to do for it.
func (r *rig) processIn(attr *syscall.SysProcAttr, args ...string) *exec.Cmd {
	r.t.Helper()
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Stderr, cmd.SysProcAttr = r.t.Output(), attr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		r.t.Fatalf("%v: %q, %v", args, line, err)
	}
	return cmd
}

// eventually waits until ok, with a last word where that does not come.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("not in %v: %s", patience, what)
		}
	}
}

// random is data by a seed.
func random(seed uint64, n int) []byte {
	p := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	r.Read(p)
	return p
}

func slogTo(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }
