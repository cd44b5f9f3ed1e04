package seams

import (
	"context"
	"fmt"

	"github.com/wherry-fabric/wherry/inject/abi"
)

// Engine runs functions that are built into a device: code only names one of them.
type Engine map[string]func(payload []byte, h abi.Host, limits abi.Limits) abi.Status

// Echo replies with its payload.
func Echo(payload []byte, h abi.Host, limits abi.Limits) abi.Status {
	if limits.ReplyBytes != 0 && uint64(len(payload)) > limits.ReplyBytes {
		return abi.ErrLimit
	}
	return h.Reply(payload)
}

func (e Engine) Offers() []abi.Offer {
	return []abi.Offer{{Form: "elf", Triple: "device-builtin", Tier: "built in"}}
}

func (e Engine) Load(_ context.Context, code abi.Code) (abi.Program, error) {
	fn := e[string(code.Bytes)]
	if fn == nil {
		return nil, fmt.Errorf("the device has no function %.20q", code.Bytes)
	}
	return &builtin{fn: fn, limits: code.Limits}, nil
}

// builtin is the program, what it is bound to, room for it and an instance: it keeps nothing between runs.
type builtin struct {
	fn     func([]byte, abi.Host, abi.Limits) abi.Status
	limits abi.Limits
}

func (b *builtin) Bind(context.Context, string, []abi.Window) (abi.Bound, error) { return b, nil }
func (b *builtin) Need(uint64) uint64                                            { return 0 }
func (b *builtin) Reserve(uint64) (abi.Place, error)                             { return place{b}, nil }
func (b *builtin) Close()                                                        {}

type place struct{ *builtin }

func (p place) Ready() bool                                   { return true }
func (p place) Acquire(context.Context) (abi.Instance, error) { return instance{p.builtin}, nil }
func (p place) Release()                                      {}

type instance struct{ *builtin }

func (i instance) Waits()   {}
func (i instance) Release() {}

func (i instance) Run(payload []byte, limits *abi.Limits, h abi.Host) (abi.Status, error) {
	if err := h.Tick(); err != nil {
		return 0, err
	}
	if limits == nil {
		limits = &i.limits
	}
	return i.fn(payload, h, *limits), nil
}
