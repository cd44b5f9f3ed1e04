package ionode

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/examples/ioforward/wire"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/rpc"
)

// serve registers one call. Its handler runs on a goroutine of its own, as nearly all of
// them wait for a disk.
func serve[Req, Resp any](n *Node, m rpc.Method[Req, Resp], fn func(context.Context, *rpc.Call, Req) (Resp, error)) error {
	return m.Serve(n.peer, func(ctx context.Context, c *rpc.Call, req Req) (Resp, error) {
		n.renew(c.From)
		if n.cfg.ReadOnly && n.changing(c.Name) {
			var none Resp
			return none, wire.Error(syscall.EROFS)
		}
		resp, err := fn(ctx, c, req)
		return resp, n.answer(c, err)
	}, rpc.Options{})
}

// answer is an error as it travels.
func (n *Node) answer(c *rpc.Call, err error) error {
	var number syscall.Errno
	switch {
	case err == nil:
		return nil
	case errors.As(err, &number):
	case errors.Is(err, fs.ErrClosed): // by the sweeper, under our hands
		number = syscall.ESTALE
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	default:
		number = syscall.EIO
		n.cfg.Log.Warn("a call failed", "call", c.Name, "client", c.From.String(), "error", err)
	}
	return wire.Error(number)
}

func (n *Node) register() error {
	c := n.calls
	return errors.Join(
		serve(n, c.Hello, n.hello),
		serve(n, c.Renew, func(context.Context, *rpc.Call, struct{}) (none struct{}, err error) { return }),
		serve(n, c.Open, n.openFile),
		serve(n, c.Close, n.closeFile),
		serve(n, c.Sync, n.sync),
		serve(n, c.StatOpen, n.statOpen),
		serve(n, c.Read, n.readFile),
		serve(n, c.Write, n.writeFile),
		serve(n, c.List, n.list),
		serve(n, c.Stat, n.stat),
		serve(n, c.Readlink, n.readlink),
		serve(n, c.Remove, n.remove),
		serve(n, c.Mkdir, n.mkdir),
		serve(n, c.Rename, n.rename),
		serve(n, c.Set, n.set),
		serve(n, c.Space, n.space),
	)
}

func (n *Node) hello(context.Context, *rpc.Call, struct{}) (wire.Welcome, error) {
	l := n.cfg.Limits
	return wire.Welcome{IOBytes: uint32(l.IOBytes), Calls: uint32(min(l.Calls, l.CallsPerClient)),
		LeaseMs: uint32(l.Lease.Milliseconds()), ReadOnly: n.cfg.ReadOnly}, nil
}

// mayOpen checks an open's flags against what may be done here.
func (n *Node) mayOpen(from *fabric.Endpoint, f wire.Flags) error {
	changes := f&(wire.Write|wire.Create|wire.Truncate) != 0
	switch {
	case f&(wire.Read|wire.Write) == 0,
		f&wire.Directory != 0 && f != wire.Directory|wire.Read,
		f&wire.Exclusive != 0 && f&wire.Create == 0,
		f&wire.Truncate != 0 && f&wire.Write == 0:
		return syscall.EINVAL
	case changes && n.cfg.ReadOnly:
		return syscall.EROFS
	case changes && !n.cfg.Open && !cluster.Caps(from.Principal().Caps).Has(cluster.CapWrite):
		return syscall.EACCES
	}
	return nil
}

// systemFlags are an open's flags as the kernel knows them.
func systemFlags(f wire.Flags) int {
	flags := os.O_RDONLY
	switch f & (wire.Read | wire.Write) {
	case wire.Write:
		flags = os.O_WRONLY
	case wire.Read | wire.Write:
		flags = os.O_RDWR
	}
	for _, p := range [...]struct {
		ours   wire.Flags
		theirs int
	}{{wire.Create, os.O_CREATE}, {wire.Exclusive, os.O_EXCL}, {wire.Truncate, os.O_TRUNC}, {wire.Directory, syscall.O_DIRECTORY}} {
		if f&p.ours != 0 {
			flags |= p.theirs
		}
	}
	return flags
}

// plain refuses what is neither a file nor a directory: opening a device can have effects.
func plain(info os.FileInfo) error {
	if info.Mode().IsRegular() || info.IsDir() {
		return nil
	}
	return syscall.EOPNOTSUPP
}

// openPlain opens what is a file or a directory before it is opened, and still is afterwards:
// a pipe in its place must not block here.
func (n *Node) openPlain(path string, flags int, perm fs.FileMode) (*os.File, os.FileInfo, error) {
	if info, err := n.root.Stat(path); err == nil {
		if err := plain(info); err != nil {
			return nil, nil, err
		}
	}
	file, err := n.root.OpenFile(path, flags|syscall.O_NONBLOCK, perm)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil {
		err = plain(info)
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, info, nil
}

func (n *Node) openFile(_ context.Context, c *rpc.Call, req wire.OpenRequest) (reply wire.OpenReply, err error) {
	if err := n.mayOpen(c.From, req.Flags); err != nil {
		return reply, err
	}
	if err := checkPath(req.Path); err != nil {
		return reply, err
	}
	file, info, err := n.openPlain(req.Path, systemFlags(req.Flags), req.Perm.Perm())
	if err != nil {
		return reply, pathError(err)
	}
	reply.Attr = attrOf(info)
	if reply.Handle, err = n.keep(c.From, file, info.IsDir()); err != nil {
		file.Close()
	}
	return reply, err
}

func (n *Node) closeFile(_ context.Context, c *rpc.Call, number uint64) (none struct{}, err error) {
	h, err := n.release(c.From, number)
	if err != nil {
		return none, err
	}
	return none, h.file.Close()
}

func (n *Node) sync(_ context.Context, c *rpc.Call, number uint64) (none struct{}, err error) {
	h, err := n.find(c.From, number)
	if err != nil {
		return none, err
	}
	return none, h.file.Sync()
}

func (n *Node) statOpen(_ context.Context, c *rpc.Call, number uint64) (a wire.Attr, err error) {
	h, err := n.find(c.From, number)
	if err != nil {
		return a, err
	}
	info, err := h.file.Stat()
	if err != nil {
		return a, err
	}
	return attrOf(info), nil
}

// begin checks what reads and writes have in common, and gets them a buffer; the
// caller gives it back. The memory must be the caller's own: the node is not to be
// sent to somebody else's.
func (n *Node) begin(ctx context.Context, c *rpc.Call, req wire.IORequest, need fabric.Rights) (h *handle, b buffer, err error) {
	if int64(req.Size) > int64(n.cfg.Limits.IOBytes) || req.Offset > wire.MaxOffset-uint64(req.Size) || req.Bulk.IsNull() ||
		req.Bulk.Size() < uint64(req.Size) || req.Bulk.Rights()&need != need || req.Bulk.Owner() != c.From.Incarnation() {
		return nil, b, syscall.EINVAL
	}
	if h, err = n.find(c.From, req.Handle); err != nil {
		return nil, b, err
	}
	if h.dir {
		return nil, b, syscall.EISDIR
	}
	b, err = n.take(ctx, h.share)
	return h, b, err
}

func (n *Node) readFile(ctx context.Context, c *rpc.Call, req wire.IORequest) (uint32, error) {
	h, b, err := n.begin(ctx, c, req, fabric.RightWrite)
	if err != nil {
		return 0, err
	}
	defer n.give(b)
	got, err := h.file.ReadAt(b.bytes[:req.Size], int64(req.Offset))
	if err != nil && err != io.EOF {
		return 0, err
	}
	if _, err := c.Push(ctx, req.Bulk, 0, rpc.Memory{b.bytes[:got]}); err != nil {
		return 0, err
	}
	n.read.Add(uint64(got))
	return uint32(got), nil
}

func (n *Node) writeFile(ctx context.Context, c *rpc.Call, req wire.IORequest) (uint32, error) {
	h, b, err := n.begin(ctx, c, req, fabric.RightRead)
	if err != nil {
		return 0, err
	}
	defer n.give(b)
	if _, err := c.Pull(ctx, req.Bulk, 0, rpc.Memory{b.bytes[:req.Size]}); err != nil {
		return 0, err
	}
	put, err := h.file.WriteAt(b.bytes[:req.Size], int64(req.Offset))
	n.wrote.Add(uint64(put))
	return uint32(put), err
}
