package wasm

import (
	"context"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/internal/wasmcode"
)

const (
	i32 = wasmcode.I32
	i64 = wasmcode.I64
)

// hostCall is one function that guests import from module abi.Module.
type hostCall struct {
	name            string
	params, results []wasmcode.ValType
	run             func(in *Instance, st []uint64)
}

// Host calls whose messages may come through the mailbox.
const (
	callReply   = "reply"
	callForward = "forward"
)

// callScratch is what a function asks for memory of its invocation.
const callScratch = "scratch"

func sig(params ...wasmcode.ValType) []wasmcode.ValType { return params }

// hostCalls lists ABI version 1, in the order of docs/abi.md. Arguments and the result are
// in st; what each means is at its implementation.
func hostCalls() []hostCall {
	one := sig(i32)
	return []hostCall{
		{"self", nil, one, (*Instance).callSelf},
		{"elements", nil, one, (*Instance).callElements},
		{"owner", sig(i64, i32), one, (*Instance).callOwner},
		{"row", sig(i32, i64), sig(i64), (*Instance).callRow},
		{"shard_rows", sig(i32, i32), one, (*Instance).callShardRows},
		{"window", sig(i32, i32), one, (*Instance).callWindow},
		{"payload", sig(i32), one, (*Instance).callPayload},
		{callScratch, sig(i64), one, (*Instance).callScratch},
		{callReply, sig(i32, i32), one, (*Instance).callReply},
		{"reply_part", sig(i32, i32), one, (*Instance).callReplyPart},
		{callForward, sig(i32, i32, i32), one, (*Instance).callForward},
		{"fork", sig(i32, i32, i32), one, (*Instance).callFork},
		{"get", sig(i32, i32, i64, i32, i32), one, (*Instance).callGet},
		{"put", sig(i32, i32, i64, i32, i32), one, (*Instance).callPut},
		{"atomic", sig(i32, i32, i64, i32, i32, i64, i64, i32), one, (*Instance).callAtomic},
		{"log", sig(i32, i32), nil, (*Instance).callLog},
		{"now", nil, sig(i64), (*Instance).callNow},
		{"remaining", nil, sig(i64), (*Instance).callRemaining},
	}
}

// addedCalls are those that instrumented code imports besides.
func addedCalls() []hostCall {
	return []hostCall{
		{wasmcode.ImportTick, nil, sig(i64), (*Instance).callTick},
		{wasmcode.ImportStoreTrap, sig(i64), nil, (*Instance).callStoreTrap},
	}
}

// rules are what a module must keep to.
func rules() *wasmcode.Rules {
	r := &wasmcode.Rules{
		Module: abi.Module,
		Entry:  abi.Entry,
		Type:   wasmcode.Type{Params: sig(i32, i32), Results: sig(i32)},
		Init:   initExport,
		Mailed: callReply, MailedTo: callForward, Windows: "window",
	}
	for _, c := range hostCalls() {
		r.Imports = append(r.Imports, wasmcode.Import{Name: c.name, Type: wasmcode.Type{Params: c.params, Results: c.results}})
	}
	return r
}

// initExport is what reactors (TinyGo, Rust, wasi-sdk without WASI) call their constructor.
const initExport = "_initialize"

// instantiateHost makes the host module. Its functions find the run that they
// serve in the context: every instance is the context of its own calls, so
// nothing is looked up or allocated.
func instantiateHost(ctx context.Context, rt wazero.Runtime) error {
	b := rt.NewHostModuleBuilder(abi.Module)
	for _, c := range append(hostCalls(), addedCalls()...) {
		run := c.run
		f := api.GoFunc(func(ctx context.Context, st []uint64) {
			in := ctx.(*Instance)
			if in.mailed() {
				in.deliver(false)
			}
			run(in, st)
		})
		b.NewFunctionBuilder().WithGoFunction(f, apiTypes(c.params), apiTypes(c.results)).Export(c.name)
	}
	_, err := b.Instantiate(ctx)
	return err
}

func apiTypes(vs []wasmcode.ValType) []api.ValueType {
	ts := make([]api.ValueType, len(vs))
	for i, v := range vs {
		ts[i] = api.ValueType(v)
	}
	return ts
}
