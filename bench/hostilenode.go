package bench

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/cputime"
	"github.com/wherry-fabric/wherry/node"
	"github.com/wherry-fabric/wherry/rpc"
)

// What hostile functions and neighbours are measured on is a node, with tokens of those that take part.

const (
	victimMemory = 1 << 30
	victimPool   = 256 << 20
	victimCode   = 256 // MiB of machine code for wasm: little enough to be filled, and for more functions than one principal may have bindings
	fewCalls     = 8   // that are under way now and then besides the endless ones
	waitsBits    = 20  // of the answer to idPlaces: the number of those that wait; above it how often something was refused or gave way
)

// principals are who takes part, and what they may do.
var principals = map[string]cluster.Caps{"node": cluster.CapsAll, "client": cluster.CapsAll &^ cluster.CapMember, "ann": cluster.CapsAll &^ cluster.CapMember, "eve": cluster.CapsAll &^ (cluster.CapMember | cluster.CapAdmin)}

// secretOf is a principal's; there is nothing to be had with it but random numbers.
func secretOf(name string) []byte {
	sum := sha256.Sum256([]byte("the secret of " + name))
	return sum[:]
}

func tokensOf() (*cluster.Tokens, error) {
	var list []cluster.Token
	for name, caps := range principals {
		list = append(list, cluster.Token{Name: name, Caps: caps, Secret: secretOf(name)})
	}
	return cluster.NewTokens(list)
}

// named is an Auth of such principals.
type named string

func (n named) Self() (string, []byte) { return string(n), secretOf(string(n)) }
func (n named) Lookup(name string) ([]byte, fabric.Principal, bool) {
	return secretOf(name), fabric.Principal{Name: name, Caps: uint32(principals[name])}, true
}
func (n named) Anonymous(fabric.PeerCred, bool) (fabric.Principal, bool) {
	return fabric.Principal{}, false
}

// long is a call whose handler ends with it.
var long = rpc.Define("bench.long", rpc.Bytes{}, rpc.Bytes{})

// startNode starts a node that is to suffer.
func startNode(spec *role) (info serverInfo, s *station, err error) {
	tokens, err := tokensOf()
	if err != nil {
		return info, nil, err
	}
	code := victimCode
	if spec.Code.Form != "wasm" { // half is native code's then
		code *= 2
	}
	cfg := node.Config{Name: spec.Name, Listen: []string{spec.Listen}, Tokens: tokens, Token: "node", Memory: victimMemory, PoolMemory: victimPool, LimitsByName: map[string]string{"code_bytes": fmt.Sprint(code, "MiB")},
		Policy: spec.Policy.String(), WasmCompiler: spec.WasmCompiler, Schemes: fabric.Schemes{spec.scheme}}
	if spec.Code.Form != "wasm" {
		cfg.Native, cfg.Trust = spec.Code.Native, []node.TrustedKey{{Name: "bench", Key: hex.EncodeToString(spec.Code.Trust)}}
	}
	n, err := node.New(cfg)
	if err != nil {
		return info, nil, err
	}
	s = &station{el: n.Element(), rt: n.Runtime(), rpc: n.RPC()}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	s.endNode = func() { cancel(); <-ended }
	s.handleState()
	if err := echo.Serve(s.rpc, func(_ context.Context, _ *rpc.Call, req []byte) ([]byte, error) { return req, nil }, rpc.Options{}); err != nil {
		return info, nil, err
	}
	err = long.Serve(s.rpc, func(ctx context.Context, _ *rpc.Call, _ []byte) ([]byte, error) {
		s.longs.Add(1)
		defer s.longs.Add(-1)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}, rpc.Options{})
	info.Name, info.Addr, info.Incarnation = spec.Name, n.Addrs()[0], s.el.Incarnation()
	return info, s, err
}

// handleState answers what runs here, what the longest load took, µs, what processor time it has used, and what memory the process has of its own, MiB.
func (s *station) handleState() {
	s.el.Handle(idState, func(m fabric.Message) {
		st := s.rt.Stats()
		m.From.Post(idAlloc, binary.LittleEndian.AppendUint64(nil, uint64(st.Sizes.Running)<<32|uint64(st.LongestLoad.Microseconds())), nil)
	})
	s.el.Handle(idPlaces, func(m fabric.Message) {
		calls, st := s.rpc.Stats(), s.rt.Stats()
		waits := int(calls.Parked) + st.Sizes.Queued + st.Sizes.Awaiting + st.Sizes.Backlog + st.Sizes.Stowed
		if held := int(calls.Active - s.longs.Load()); held > fewCalls { // they wait for memory of requests
			waits += held
		}
		turned := calls.Refused + calls.HandlerErrors + st.Counters.Refused + st.Evicted
		m.From.Post(idAlloc, binary.LittleEndian.AppendUint64(nil, turned<<waitsBits|uint64(min(waits, 1<<waitsBits-1))), nil)
	})
	s.el.Handle(idCPU, func(m fabric.Message) {
		used, _ := cputime.Process(os.Getpid()) // of oneself it never fails
		m.From.Post(idAlloc, binary.LittleEndian.AppendUint64(nil, uint64(used)), nil)
	})
	s.el.Handle(idMemory, func(m fabric.Message) { m.From.Post(idAlloc, binary.LittleEndian.AppendUint64(nil, ownMiB()), nil) })
}
