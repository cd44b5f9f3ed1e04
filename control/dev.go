package control

import (
	"context"
	"errors"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/lender"
	"github.com/wherry-fabric/wherry/rpc"
)

// ServeDevices registers the calls of a lender.
func ServeDevices(p *rpc.Peer, l *lender.Lender) error {
	return errors.Join(
		Serve(p, device.CallList, func(_ context.Context, call *rpc.Call, _ *device.Nothing) (*device.ListReply, error) {
			return l.List(PrincipalOf(call.From))
		}),
		Serve(p, device.CallStat, func(_ context.Context, call *rpc.Call, req *device.NameRequest) (*device.Info, error) {
			return l.Stat(PrincipalOf(call.From), req.Name)
		}),
		Serve(p, device.CallGrant, func(_ context.Context, call *rpc.Call, req *device.GrantRequest) (*device.Nothing, error) {
			return &device.Nothing{}, l.Grant(PrincipalOf(call.From), req)
		}),
		Serve(p, device.CallBorrow, func(_ context.Context, call *rpc.Call, req *device.BorrowRequest) (*device.BorrowReply, error) {
			return l.Borrow(PrincipalOf(call.From), call.From, req)
		}),
		Serve(p, device.CallWindow, func(ctx context.Context, call *rpc.Call, req *device.WindowRequest) (*device.WindowReply, error) {
			return l.Window(ctx, call.From, req)
		}),
		Serve(p, device.CallQueue, func(_ context.Context, call *rpc.Call, req *device.QueueRequest) (*device.QueueReply, error) {
			return l.Queue(call.From, req)
		}),
		Serve(p, device.CallUnwindow, func(ctx context.Context, call *rpc.Call, req *device.UnwindowRequest) (*device.Nothing, error) {
			return &device.Nothing{}, l.Unwindow(ctx, call.From, req)
		}),
		Serve(p, device.CallUnqueue, func(ctx context.Context, call *rpc.Call, req *device.UnqueueRequest) (*device.Nothing, error) {
			return &device.Nothing{}, l.Unqueue(ctx, call.From, req)
		}),
		Serve(p, device.CallShadow, func(_ context.Context, call *rpc.Call, req *device.ShadowRequest) (*device.Nothing, error) {
			return &device.Nothing{}, l.Shadow(call.From, req)
		}),
		Serve(p, device.CallReturn, func(ctx context.Context, call *rpc.Call, req *device.LeaseRequest) (*device.Nothing, error) {
			return &device.Nothing{}, l.Return(ctx, PrincipalOf(call.From), req.Lease)
		}),
	)
}
