package wasm

import (
	"context"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/internal/invariants"
	"github.com/wherry-fabric/wherry/internal/wasmcode"
)

// hostCall is one function that instrumented code imports from module abi.Module. Arguments and the result are in st.
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

// callWindowAt is what a function asks for parts of windows.
const callWindowAt = "window_at"

// hostCalls are the ABI's, with what carries each out.
func hostCalls() []hostCall {
	runs := map[string]func(*Instance, []uint64){
		"self": (*Instance).callSelf, "elements": (*Instance).callElements,
		"owner": (*Instance).callOwner, "row": (*Instance).callRow, "shard_rows": (*Instance).callShardRows,
		"window": (*Instance).callWindow, callWindowAt: (*Instance).callWindowAt, "payload": (*Instance).callPayload, callScratch: (*Instance).callScratch,
		callReply: (*Instance).callReply, "reply_part": (*Instance).callReplyPart, callForward: (*Instance).callForward, "fork": (*Instance).callFork,
		"get": (*Instance).callGet, "get_near": (*Instance).callGetNear, "put": (*Instance).callPut, "atomic": (*Instance).callAtomic,
		"log": (*Instance).callLog, "now": (*Instance).callNow, "remaining": (*Instance).callRemaining, "random": (*Instance).callRandom,
		"derive": (*Instance).callDerive, "constants": (*Instance).callConstants, "assemble": (*Instance).callAssemble,
	}
	var list []hostCall
	for _, c := range abi.Calls() {
		run := runs[c.Name]
		if newest, err := abi.CallNamed(c.Name, abi.Version); err == nil && len(newest.Params) == len(c.Params)+1 {
			run = shifted(run, len(c.Params))
		}
		if c.Effect == abi.Waits {
			run = waiting(run)
		}
		i := image.WasmImport(&c)
		list = append(list, hostCall{i.As, i.Type.Params, i.Type.Results, checked(c, run)})
	}
	return list
}

// shifted carries out a call of ABI 1, of n parameters, as the one of ABI 2 that has another in front, which is 0.
func shifted(run func(*Instance, []uint64), n int) func(*Instance, []uint64) {
	return func(in *Instance, st []uint64) {
		in.shifted[0] = 0
		copy(in.shifted[1:], st[:n])
		run(in, in.shifted[:])
		st[0] = in.shifted[0]
	}
}

// waiting counts the run's time on after a call that may have waited.
func waiting(run func(*Instance, []uint64)) func(*Instance, []uint64) {
	return func(in *Instance, st []uint64) {
		run(in, st)
		in.waited()
	}
}

// checked has tests hold a call to the statuses that the ABI says it can answer.
func checked(c abi.Call, run func(*Instance, []uint64)) func(*Instance, []uint64) {
	if !invariants.Enabled || c.Result == "void" || c.Result == "void *" {
		return run
	}
	return func(in *Instance, st []uint64) {
		run(in, st)
		answer := int64(st[0])
		if c.Result == "int32_t" {
			answer = int64(int32(answer))
		}
		if answer < 0 && !c.May(abi.Status(answer)) {
			panic(fmt.Sprintf("wasm: %s answers %d, which is none of its errors in inject/abi", c.Name, answer))
		}
	}
}

// addedCalls are those that instrumented code imports besides.
func addedCalls() []hostCall {
	return []hostCall{
		{wasmcode.ImportTick, nil, []wasmcode.ValType{wasmcode.I64}, (*Instance).callTick},
		{wasmcode.ImportStoreTrap, []wasmcode.ValType{wasmcode.I64}, nil, (*Instance).callStoreTrap},
	}
}

// rules are what a module of an ABI version must keep to.
func rules(version uint32) *wasmcode.Rules {
	r := image.WasmRules(version)
	r.Init, r.Mailed, r.MailedTo, r.Windows = initExport, callReply, callForward, "window"
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
