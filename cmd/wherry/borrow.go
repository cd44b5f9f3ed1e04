package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nvme/host"
	"github.com/wherry-fabric/wherry/node"
)

// borrowFlags are those of dev borrow.
type borrowFlags struct {
	as, mode, span string
}

func (a *app) devBorrowCommand(on *string) *cobra.Command {
	var f borrowFlags
	cmd := &cobra.Command{
		Use:   "borrow NAME --as nbd:ADDRESS|vfio-user:PATH",
		Short: "Borrow a drive, and serve it to programs or a guest here",
		Long: `Borrow a drive and serve it, until the command is ended or the drive is lost.

nbd:ADDRESS: ADDRESS is host:port on this machine's loopback, or the path of a Unix socket:
NBD knows no users, and whoever reaches the address has the drive. Many programs speak it:
nbdcopy, qemu-img, qemu, fio, and nbd-client makes a block device of it.

vfio-user:PATH: a virtual machine plugs the drive in as an NVMe controller, by the Unix
socket PATH. The guest needs its own NVMe driver and nothing of wherry's; QEMU 10.1 or
later is the client, with memory that is shared:
  qemu-system-x86_64 -object memory-backend-memfd,id=m,size=1G,share=on \
    -machine q35,memory-backend=m -device pcie-root-port,id=rp1 ...
  (qemu) device_add {"driver":"vfio-user-pci","id":"disk0","bus":"rp1",
                     "socket":{"type":"unix","path":"PATH"}}     # device_del gives it back`,
		Example: `  wherry dev borrow disk0 --as nbd:127.0.0.1:10809
  wherry dev borrow disk0 --as nbd:/run/user/1000/disk0.sock --mode read --range 0-1GiB
  wherry dev borrow disk0 --as vfio-user:/run/user/1000/disk0.sock`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completing(completeDevices, 1),
	}
	p := cmd.Flags()
	p.StringVar(&f.as, "as", "", "how it is served: nbd:HOST:PORT, nbd:/PATH or vfio-user:/PATH; a port may be 0")
	p.StringVar(&f.mode, "mode", string(device.Exclusive), "exclusive (nobody else has these blocks), shared (others may read and write them) or read")
	p.StringVar(&f.span, "range", "", "part of the drive, as in 1GiB-2GiB: from the first size on, up to the second (default: all)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.borrow(cmd, *on, args[0], &f) }
	return cmd
}

// front serves a borrowed drive to programs.
type front interface {
	listen(addr string) (net.Listener, error)
	// serve serves it until ctx ends, when it returns nil, or until the drive is lost. up is told first.
	serve(ctx context.Context, l net.Listener, lease *host.Lease, up func(url string) error) error
}

// front is what --as names, and the address it has.
func (f *borrowFlags) front(a *app) (front, string, error) {
	kind, addr, _ := strings.Cut(f.as, ":")
	switch {
	case kind == "nbd" && addr != "":
		return nbdFront{a}, addr, nil
	case kind == "vfio-user" && strings.HasPrefix(addr, "/"):
		return guestFront{a}, addr, nil
	}
	return nil, "", usagef("--as %q: it is nbd:HOST:PORT, nbd:/PATH or vfio-user:/PATH", f.as)
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
	by, addr, err := f.front(a)
	if err != nil {
		return err
	}
	l, err := by.listen(addr)
	if err != nil {
		return usagef("--as %s: %w", f.as, err)
	}
	defer l.Close()
	ctx, cancel := a.context(cmd)
	defer cancel()
	a.client.node = on
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	at, err := deviceNode(ctx, c, on, name)
	if err != nil {
		return err
	}
	lease, err := c.BorrowLease(ctx, at, name, cfg)
	if err != nil {
		return err
	}
	defer func() {
		back, cancel := context.WithTimeout(context.Background(), giveBackTime)
		defer cancel()
		err = errors.Join(err, lease.Close(back))
	}()
	return by.serve(cmd.Context(), l, lease, func(url string) error {
		up := borrowed{Name: name, Node: at, Lease: lease.ID(), SizeBytes: lease.Size(), URL: url, Mapped: lease.Mapped()}
		return a.print(up, func(w io.Writer) {
			fmt.Fprintf(w, "%s of node %s, %v, is at %s (lease %d)\n", up.Name, up.Node, node.Bytes(up.SizeBytes), up.URL, up.Lease)
		})
	})
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
