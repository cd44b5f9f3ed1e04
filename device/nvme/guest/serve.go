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

// Serve serves a borrowed drive to guests, one after the other, until ctx ends, when it returns nil, or until the drive is lost and no guest has it any more. The drive
// stays the caller's.
func Serve(ctx context.Context, log *slog.Logger, l *net.UnixListener, d *host.Drive, name string) (err error) {
	near, err := NewNear(d.Element(), log, d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, near.Close()) }()
	cfg := Config{Element: d.Element(), Log: log, Drive: describe(d, name), Serve: near.Serve}
	s := vfiouser.New(vfiouser.Config{Identity: Identity, Log: log, Lost: d.Err,
		Open: func(signal vfiouser.Signal) (vfiouser.Device, error) { return Open(cfg, signal) }})
	defer context.AfterFunc(ctx, s.Close)()
	defer s.Close()
	return s.Serve(l)
}

// describe is what the guest is told of a drive. Each lease is a drive of its own, for one guest may have two leases.
func describe(d *host.Drive, name string) admin.Drive {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", name, d.Lease()))
	id := [16]byte(sum[:16])
	id[6], id[8] = id[6]&0xf|0x80, id[8]&0x3f|0x80 // a UUID of version 8
	return admin.Drive{Blocks: d.Size() / nvme.BlockBytes, ReadOnly: d.ReadOnly(), Model: fmt.Sprintf("wherry %.32s", name), Serial: fmt.Sprintf("%x", sum[:8]), UUID: id}
}
