package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"

	"github.com/wherry-fabric/wherry/device/nbd"
	"github.com/wherry-fabric/wherry/device/nvme/guest"
	"github.com/wherry-fabric/wherry/device/nvme/host"
	"github.com/wherry-fabric/wherry/device/vfiouser"
	"github.com/wherry-fabric/wherry/fabric"
)

// nbdFront serves by NBD.
type nbdFront struct{ a *app }

func (nbdFront) listen(addr string) (net.Listener, error) {
	network := "unix"
	if !strings.HasPrefix(addr, "/") {
		network = "tcp"
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return nil, err
		}
		if !fabric.LoopbackHost(addr) {
			return nil, errors.New("NBD has neither users nor encryption, so it keeps to loopback: give 127.0.0.1:PORT or a Unix socket, and reach it from elsewhere through a tunnel")
		}
	}
	return net.Listen(network, addr)
}

func (f nbdFront) serve(ctx context.Context, l net.Listener, lease *host.Lease, up func(string) error) error {
	d, err := lease.Open(ctx)
	if err != nil {
		return err
	}
	s, err := nbd.New(d, lease.Name(), slog.New(slog.NewTextHandler(f.a.err, nil)))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, s.Close)()
	defer s.Close()
	if err := up(nbdURL(l.Addr(), lease.Name())); err != nil {
		return err
	}
	return s.Serve(l)
}

func nbdURL(addr net.Addr, name string) string {
	if addr.Network() == "unix" {
		return "nbd+unix:///" + name + "?socket=" + addr.String()
	}
	return "nbd://" + addr.String() + "/" + name
}

// guestFront serves to a virtual machine.
type guestFront struct{ a *app }

func (guestFront) listen(addr string) (net.Listener, error) { return vfiouser.Listen(addr) }

func (f guestFront) serve(ctx context.Context, l net.Listener, lease *host.Lease, up func(string) error) error {
	if err := up("vfio-user:" + l.Addr().String()); err != nil {
		return err
	}
	return guest.Serve(ctx, slog.New(slog.NewTextHandler(f.a.err, nil)), l.(*net.UnixListener), lease)
}
