package node

import (
	"context"
	"encoding/hex"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/rpc"
)

// status answers principals that may read. What other clients do is shown to admins only.
func (n *Node) status(_ context.Context, c *rpc.Call, _ *control.StatusRequest) (*control.Status, error) {
	who := control.PrincipalOf(c.From)
	if !who.Caps.Has(cluster.CapRead) {
		return nil, &cluster.ForbiddenError{Principal: who.Name, Need: "capability read", Do: "use a token or certificate that has it, or admin to see all endpoints"}
	}
	s := &control.Status{Name: n.cfg.Name, Program: n.cfg.Program, Incarnation: cluster.Incarnation(n.el.Incarnation()),
		UptimeMs: time.Since(n.started).Milliseconds(), Stopping: n.stopping.Load(), Forms: n.rt.Forms(), Engines: []control.EngineStatus{}, Memory: n.data.status(),
		Processor: control.ProcessorStatus{Processors: runtime.GOMAXPROCS(0), UsedMs: processTime().Milliseconds(), SinceMs: time.Since(n.started).Milliseconds()},
		Endpoints: []control.EndpointStatus{}, Functions: []control.FunctionStatus{}}
	if n.tls != nil {
		s.CertUntil = n.tls.Until()
	}
	n.peerStatus(s, who)
	n.endpointStatus(s, c.From, who.Caps.Has(cluster.CapAdmin))
	n.functionStatus(s)
	calls := n.rpc.Stats()
	s.Calls = control.CallsStatus{Active: calls.Active, Held: calls.Held, HeldBytes: calls.HeldBytes, Served: calls.Served, ServedErrors: calls.HandlerErrors,
		Refused: calls.Refused, Made: calls.Calls, MadeErrors: calls.Failed}
	return s, nil
}

// endpointStatus lists transports and endpoints.
func (n *Node) endpointStatus(s *control.Status, from *fabric.Endpoint, all bool) {
	index := map[string]int{}
	for _, scheme := range n.schemes.Names() {
		index[scheme] = len(s.Transports)
		t := control.TransportStatus{Scheme: scheme, Listening: []string{}}
		for _, a := range n.el.Addrs() {
			if strings.HasPrefix(a, scheme+"://") {
				t.Listening = append(t.Listening, a)
			}
		}
		s.Transports = append(s.Transports, t)
	}
	for _, ep := range n.el.Endpoints() {
		scheme := transportOf(ep.RemoteAddr())
		if i, ok := index[scheme]; ok {
			s.Transports[i].Endpoints++
		}
		who := control.PrincipalOf(ep)
		if !all && ep != from && !who.Caps.Has(cluster.CapMember) || len(s.Endpoints) >= control.MaxStatusEndpoints {
			s.EndpointsLeft++
			continue
		}
		e := ep.Stats()
		s.Endpoints = append(s.Endpoints, control.EndpointStatus{Peer: ep.Name(), Incarnation: cluster.Incarnation(ep.Incarnation()),
			Principal: who.Name, Caps: who.Caps.String(), Transport: scheme, Addr: ep.RemoteAddr(), Asker: ep == from,
			Shared: e.Shared, Mapped: e.Mapped, Exported: e.Exported,
			SentFrames: e.SentFrames, SentBytes: e.SentBytes, SentMessages: e.NormalFrames, MessageBytes: e.NormalBytes,
			OutboxBytes: e.Outbox, ReservedBytes: e.Reserved, Credit: e.Credit, Window: e.Window})
	}
}

// transportOf is the scheme that a connection's address begins with: an
// accepted one over shm has no address to dial, only the peer's process.
func transportOf(addr string) string {
	if i := strings.IndexFunc(addr, func(r rune) bool { return r < 'a' || r > 'z' }); i >= 0 {
		return addr[:i]
	}
	return addr
}

// functionStatus tells of functions, their queues and their code.
func (n *Node) functionStatus(s *control.Status) {
	rt := n.rt.Stats()
	q := rt.Sizes
	s.Queues = control.QueueStatus{Running: q.Running, Queued: q.Queued, Held: q.HeldRuns, HeldBytes: q.HeldBytes,
		Invocations: q.Invocations, Records: q.Records, Futures: q.Futures, Tombstones: q.Tombstones + q.Lapsed,
		Fetches: q.Fetches, FetchBytes: q.FetchBytes, Reports: q.PendingReports, OutboxBytes: q.OutboxBytes,
		Runs: rt.Runs, Forwards: rt.Forwards, Forks: rt.Forks, Refused: rt.Refused, Duplicates: rt.Duplicates}
	engine, disk := n.engine.Stats(), n.engine.Disk()
	s.CodeCache = control.CodeCacheStatus{Compiled: engine.Compiled, Instances: engine.Live, InstanceBytes: engine.Bytes, MachineBytes: engine.CodeBytes,
		Memory: control.CacheStatus{Entries: rt.CacheCount, Bytes: rt.CacheBytes, Limit: n.rt.CacheLimit(),
			Hits: rt.CacheHits, Misses: rt.CacheMisses, Evicted: rt.Evicted}}
	if disk.Dir != "" {
		s.CodeCache.Disk = &control.CacheStatus{Dir: disk.Dir, Entries: disk.Files, Bytes: disk.Bytes, Limit: disk.Limit,
			Hits: engine.CacheHits, Misses: engine.CacheMisses, Evicted: engine.CacheEvicted}
	}
	for _, o := range n.rt.Offers() {
		s.Engines = append(s.Engines, control.EngineStatus{Form: o.Form, Triple: o.Triple, Features: o.Features, Tier: o.Tier, Why: o.Why})
	}
	list, left := n.rt.Functions(control.MaxStatusFunctions)
	s.FunctionsLeft = left
	for _, f := range list {
		idle := int64(-1)
		if f.Used {
			idle = f.Idle.Milliseconds()
		}
		s.Functions = append(s.Functions, control.FunctionStatus{Name: f.Name, ID: hex.EncodeToString(f.ID[:]), Bytes: f.Bytes,
			Forms: slices.Clone(f.Forms), Ready: f.Ready, InUse: f.Pinned, Runs: f.Runs, Errors: f.Failed, IdleMs: idle, Ran: ran(f.Ran)})
	}
}

func ran(list []inject.FormStats) (out []control.RanStatus) {
	for _, f := range list {
		out = append(out, control.RanStatus{Form: f.Form, Tier: f.Tier, Why: f.Why, Runs: f.Runs, MeanUs: float64(f.Mean()) / float64(time.Microsecond), Bytes: f.Bytes})
	}
	return out
}

// explain says in which form a function runs here.
func (n *Node) explain(_ context.Context, c *rpc.Call, r *control.ExplainRequest) (*control.Explanation, error) {
	who := control.PrincipalOf(c.From)
	if !who.Caps.Has(cluster.CapInject) {
		return nil, &cluster.ForbiddenError{Principal: who.Name, Need: "capability inject", Do: "use a token or certificate that has it"}
	}
	wish, err := forms.ParseWish(r.Form)
	id, herr := hex.DecodeString(r.ID)
	if err != nil || herr != nil || len(id) != len(image.ID{}) {
		return nil, fmt.Errorf("%w: a function is asked for by its id, 64 hex digits, and the form that was asked for: %q, %q", control.ErrRequest, r.ID, r.Form)
	}
	e, known := n.rt.Explain(image.ID(id), wish)
	out := &control.Explanation{Known: known, Chosen: chosen(&e)}
	list, left := n.rt.Descendants(image.ID(id), wish, who.Name, who.Caps.Has(cluster.CapAdmin))
	out.DescendantsLeft = left
	for i := range list {
		d := &list[i]
		out.Descendants = append(out.Descendants, control.Descendant{ID: d.ID.String(), Name: d.Name, Kind: string(d.Kind), Parent: d.Parent.String(), Chosen: chosen(&d.Explanation)})
	}
	return out, nil
}

func chosen(e *inject.Explanation) control.Chosen {
	out := control.Chosen{Form: e.Form, Triple: e.Triple, Tier: e.Tier, Why: e.Why, Refused: []control.RefusedCode{}}
	for _, no := range e.Refused {
		out.Refused = append(out.Refused, control.RefusedCode{Form: no.Form.String(), Triple: no.Triple, Why: no.Why})
	}
	return out
}
