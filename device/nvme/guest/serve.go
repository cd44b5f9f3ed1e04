package guest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/wherry-fabric/wherry/device/nvme"
	"github.com/wherry-fabric/wherry/device/nvme/admin"
	"github.com/wherry-fabric/wherry/device/nvme/host"
	"github.com/wherry-fabric/wherry/device/vfiouser"
)

// Serve serves a borrowed drive to guests, one after the other, until ctx ends, when it returns nil, or until the drive is lost and no guest has it any more. The lease
// stays the caller's.
func Serve(ctx context.Context, log *slog.Logger, l *net.UnixListener, lease *host.Lease) (err error) {
	serve := func(failed func(error)) (Server, error) { return newFar(lease, failed), nil }
	if !lease.Mapped() {
		d, failed := lease.Open(ctx)
		if failed != nil {
			return failed
		}
		near, failed := newNear(log, d)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, near.Close()) }()
		serve = near.serve
	}
	cfg := Config{Element: lease.Element(), Log: log, Drive: describe(lease), Serve: serve}
	s := vfiouser.New(vfiouser.Config{Identity: Identity, Log: log, Over: lease.Over(), Lost: lease.Err,
		Open: func(signal vfiouser.Signal) (vfiouser.Device, error) { return Open(cfg, signal) }})
	defer context.AfterFunc(ctx, s.Close)()
	defer s.Close()
	return s.Serve(l)
}

// describe is what the guest is told of a drive. Each lease is a drive of its own, for one guest may have two leases.
func describe(l *host.Lease) admin.Drive {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", l.Name(), l.ID()))
	id := [16]byte(sum[:16])
	id[6], id[8] = id[6]&0xf|0x80, id[8]&0x3f|0x80 // a UUID of version 8
	return admin.Drive{Blocks: l.Size() / nvme.BlockBytes, ReadOnly: l.ReadOnly(), Model: fmt.Sprintf("wherry %.32s", l.Name()), Serial: fmt.Sprintf("%x", sum[:8]), UUID: id}
}
