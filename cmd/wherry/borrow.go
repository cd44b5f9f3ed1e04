package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nbd"
	"github.com/wherry-fabric/wherry/device/nvme"
	"github.com/wherry-fabric/wherry/device/nvme/host"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/node"
)

// borrowFlags are those of dev borrow.
type borrowFlags struct {
	as, mode, span string
}

func (a *app) devBorrowCommand(on *string) *cobra.Command {
	var f borrowFlags
	cmd := &cobra.Command{
		Use:   "borrow NAME --as nbd:ADDRESS",
		Short: "Borrow a drive, and serve it to programs here",
		Long: `Borrow a drive and serve it by NBD, until the command is ended or the drive is lost.
ADDRESS is host:port on this machine's loopback, or the path of a Unix socket: NBD knows
no users, and whoever reaches the address has the drive. Many programs speak it: nbdcopy,
qemu-img, qemu, fio, and nbd-client makes a block device of it.`,
		Example: `  wherry dev borrow disk0 --as nbd:127.0.0.1:10809
  wherry dev borrow disk0 --as nbd:/run/user/1000/disk0.sock --mode read --range 0-1GiB`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completing(completeDevices, 1),
	}
	p := cmd.Flags()
	p.StringVar(&f.as, "as", "", "how it is served: nbd:HOST:PORT or nbd:/PATH; a port may be 0")
	p.StringVar(&f.mode, "mode", string(device.Exclusive), "exclusive (nobody else has these blocks), shared (others may read and write them) or read")
	p.StringVar(&f.span, "range", "", "part of the drive, as in 1GiB-2GiB: from the first size on, up to the second (default: all)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.borrow(cmd, *on, args[0], &f) }
	return cmd
}

// listen opens the address of --as.
func (f *borrowFlags) listen() (net.Listener, error) {
	kind, addr, _ := strings.Cut(f.as, ":")
	if kind != "nbd" || addr == "" {
		return nil, usagef("--as %q: it is nbd:HOST:PORT or nbd:/PATH", f.as)
	}
	network := "unix"
	if !strings.HasPrefix(addr, "/") {
		network = "tcp"
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return nil, usagef("--as %s: %w", f.as, err)
		}
		if !fabric.LoopbackHost(addr) {
			return nil, usagef("--as %s: NBD has neither users nor encryption, so it keeps to loopback: give 127.0.0.1:PORT or a Unix socket, and reach it from elsewhere through a tunnel", f.as)
		}
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return nil, usagef("--as %s: %w", f.as, err)
	}
	return l, nil
}

// config reads mode and range.
func (f *borrowFlags) config() (cfg host.Config, err error) {
	cfg.Mode = device.Mode(f.mode)
	if err := cfg.Mode.Validate(); err != nil {
		return cfg, usagef("--mode: %w", err)
	}
	if f.span == "" {
		return cfg, nil
	}
	from, to, ok := strings.Cut(f.span, "-")
	if !ok {
		return cfg, usagef("--range %q: it is of the form FROM-TO, as in 0-1GiB", f.span)
	}
	var ends [2]node.Bytes
	for i, text := range []string{from, to} {
		if text == "0" {
			continue
		}
		if ends[i], err = node.ParseBytes(text); err != nil {
			return cfg, usagef("--range: %w", err)
		}
	}
	if ends[0] >= ends[1] {
		return cfg, usagef("--range %s: it ends where it begins, or before", f.span)
	}
	cfg.Offset, cfg.Size = uint64(ends[0]), uint64(ends[1]-ends[0])
	return cfg, nil
}

// giveBackTime is how long the lender may take to end a lease, of which a command may be under way.
const giveBackTime = 10 * time.Second

func (a *app) borrow(cmd *cobra.Command, on, name string, f *borrowFlags) (err error) {
	cfg, err := f.config()
	if err != nil {
		return err
	}
	l, err := f.listen()
	if err != nil {
		return err
	}
	defer l.Close()
	ctx, cancel := a.context(cmd)
	defer cancel()
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	at, err := deviceNode(ctx, c, on, name)
	if err != nil {
		return err
	}
	d, err := c.BorrowDrive(ctx, at, name, cfg)
	if err != nil {
		return err
	}
	defer func() {
		back, cancel := context.WithTimeout(context.Background(), giveBackTime)
		defer cancel()
		err = errors.Join(err, d.Close(back))
	}()
	s := nbd.New(d, name, slog.New(slog.NewTextHandler(a.err, nil)))
	s.Errno = errnoOf
	up := borrowed{Name: name, Node: at, Lease: d.Lease(), SizeBytes: d.Size(), URL: nbdURL(l.Addr(), name), Mapped: d.Mapped()}
	if err := a.print(up, func(w io.Writer) {
		fmt.Fprintf(w, "%s of node %s, %v, is at %s (lease %d)\n", up.Name, up.Node, node.Bytes(up.SizeBytes), up.URL, up.Lease)
	}); err != nil {
		return err
	}
	defer context.AfterFunc(cmd.Context(), s.Close)()
	defer s.Close()
	return s.Serve(l)
}

// borrowed is what dev borrow prints.
type borrowed struct {
	Name      string `json:"name"`
	Node      string `json:"node"`
	Lease     uint64 `json:"lease"`
	SizeBytes uint64 `json:"size_bytes"`
	URL       string `json:"url"`
	Mapped    bool   `json:"mapped"`
}

func nbdURL(addr net.Addr, name string) string {
	if addr.Network() == "unix" {
		return "nbd+unix:///" + name + "?socket=" + addr.String()
	}
	return "nbd://" + addr.String() + "/" + name
}

// errnoOf is NBD's number for what a drive refused.
func errnoOf(err error) uint32 {
	var refused *host.StatusError
	if !errors.As(err, &refused) {
		return nbd.ErrnoIO
	}
	switch refused.Status {
	case nvme.StatusCapacity:
		return nbd.ErrnoNoSpace
	case nvme.StatusProtected:
		return nbd.ErrnoPermission
	case nvme.StatusLBA, nvme.StatusField:
		return nbd.ErrnoInvalid
	}
	return nbd.ErrnoIO
}
