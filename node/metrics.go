package node

import (
	"math"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/wasm"
	"github.com/wherry-fabric/wherry/pool/component"
	"github.com/wherry-fabric/wherry/rpc"
)

// figures is what one look at the node finds: all metrics of an answer are of one moment.
type figures struct {
	n      *Node
	sent   fabric.EndpointStats
	calls  rpc.Stats
	runs   inject.Stats
	engine wasm.Stats
}

// metric is one of the node's own counters or levels.
type metric struct {
	name, help string
	kind       prometheus.ValueType
	read       func(*figures) float64 // NaN: the node has none
}

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

func nodeMetrics() []metric {
	return []metric{
		{"endpoints", "Connections to peers and clients.", gauge, func(f *figures) float64 { return float64(len(f.n.el.Endpoints())) }},
		{"peers_connected", "Static peers that are connected.", gauge, connectedPeers},
		{"peers", "Static peers.", gauge, func(f *figures) float64 { return float64(len(f.n.links.States())) }},
		{"peers_lost_total", "Times that the last connection to another node was lost.", counter, func(f *figures) float64 { return float64(f.n.peerLosses()) }},
		{"shards_lost", "Shards of datasets that are gone, because their node came back without them.", gauge, func(f *figures) float64 { return float64(len(f.n.lostNow())) }},
		{"cert_until_timestamp_seconds", "When the node's certificate ends, in seconds since 1970.", gauge, certUntil},
		{"messages_sent_total", "Messages of normal class sent.", counter, func(f *figures) float64 { return float64(f.sent.NormalFrames) }},
		{"message_bytes_sent_total", "Bytes of those messages.", counter, func(f *figures) float64 { return float64(f.sent.NormalBytes) }},
		{"frames_sent_total", "Frames of any kind sent: messages, operations, credit.", counter, func(f *figures) float64 { return float64(f.sent.SentFrames) }},
		{"frame_bytes_sent_total", "Bytes of those frames.", counter, func(f *figures) float64 { return float64(f.sent.SentBytes) }},
		{"outbox_bytes", "Messages and answers that wait for credit or room.", gauge, func(f *figures) float64 { return float64(f.sent.Outbox + f.sent.Reserved) }},
		{"lent_bytes", "Memory that datasets, loads and regions take.", gauge, func(f *figures) float64 { return float64(f.n.lent().Bytes) }},
		{"lent_limit_bytes", "Memory that may be lent.", gauge, func(f *figures) float64 { return float64(f.n.live.Load().Memory) }},
		{"lent_descriptors", "Descriptors that they take.", gauge, func(f *figures) float64 { return float64(f.n.lent().Files) }},
		{"lent_descriptors_limit", "Descriptors that they may take.", gauge, func(*figures) float64 { limit, _, _ := component.FilesLimit(); return float64(limit) }},
		{"resident_bytes", "Memory that the process has, a page that several mappings or processes share counted in parts.", gauge, func(f *figures) float64 { return f.n.resident.bytes(time.Now()) }},
		{"segment_bytes", "Memory of all segments, those of calls included.", gauge, func(f *figures) float64 { return float64(f.n.el.LentBytes()) }},
		{"pool_bytes", "Memory that regions take, of wherry_lent_bytes.", gauge, func(f *figures) float64 { _, p, _ := f.n.account.Used(); return float64(p.Bytes) }},
		{"pool_limit_bytes", "Memory that regions may take.", gauge, func(f *figures) float64 { return float64(f.n.live.Load().PoolMemory) }},
		{"regions", "Regions that this node lends.", gauge, func(f *figures) float64 { return float64(f.n.pool.Count()) }},
		{"datasets", "Datasets that this node holds a shard of.", gauge, func(f *figures) float64 { return float64(f.n.data.datasets()) }},
		{"loads", "Loads under way.", gauge, func(f *figures) float64 { return float64(f.n.data.loading()) }},
		{"loads_total", "Loads that became visible.", counter, func(f *figures) float64 { return float64(f.n.data.committed.Load()) }},
		{"loads_failed_total", "Loads that were given up.", counter, func(f *figures) float64 { return float64(f.n.data.aborted.Load()) }},
		{"load_bytes_total", "Bytes written into shards.", counter, func(f *figures) float64 { return float64(f.n.data.bytes.Load()) }},
		{"rpc_calls_total", "Calls made.", counter, func(f *figures) float64 { return float64(f.calls.Calls) }},
		{"rpc_calls_failed_total", "Calls made that returned an error.", counter, func(f *figures) float64 { return float64(f.calls.Failed) }},
		{"rpc_served_total", "Calls served.", counter, func(f *figures) float64 { return float64(f.calls.Served) }},
		{"rpc_served_errors_total", "Calls served with an error.", counter, func(f *figures) float64 { return float64(f.calls.HandlerErrors) }},
		{"rpc_refused_total", "Calls turned away: busy, or unknown.", counter, func(f *figures) float64 { return float64(f.calls.Refused) }},
		{"rpc_active", "Calls being served.", gauge, func(f *figures) float64 { return float64(f.calls.Active) }},
		{"rpc_parked", "One-way calls that wait until there is room for them to run.", gauge, func(f *figures) float64 { return float64(f.calls.Parked) }},
		{"rpc_held", "Answers that wait to be asked for.", gauge, func(f *figures) float64 { return float64(f.calls.Held) }},
		{"rpc_held_bytes", "What they count as.", gauge, func(f *figures) float64 { return float64(f.calls.HeldBytes) }},
	}
}

func functionMetrics() []metric {
	return []metric{
		{"inject_runs_total", "Branches begun here, also those that then waited for room.", counter, func(f *figures) float64 { return float64(f.runs.Runs) }},
		{"inject_forwards_total", "Branches handed on from here.", counter, func(f *figures) float64 { return float64(f.runs.Forwards) }},
		{"inject_forks_total", "Branches forked here.", counter, func(f *figures) float64 { return float64(f.runs.Forks) }},
		{"inject_refused_total", "Branches not taken.", counter, func(f *figures) float64 { return float64(f.runs.Refused) }},
		{"inject_duplicates_total", "Messages seen before.", counter, func(f *figures) float64 { return float64(f.runs.Duplicates) }},
		{"inject_stopped_total", "Branches not taken: their invocation had been canceled or had failed.", counter, func(f *figures) float64 { return float64(f.runs.Stopped) }},
		{"inject_running", "Branches running now.", gauge, func(f *figures) float64 { return float64(f.runs.Sizes.Running) }},
		{"inject_held", "Branches parked for code or room, or queued.", gauge, func(f *figures) float64 { return float64(f.runs.Sizes.HeldRuns) }},
		{"inject_backlog_bytes", "What branches take that wait beyond the bounds of those, because functions here wait to send.", gauge, func(f *figures) float64 { return float64(f.runs.Sizes.BacklogBytes) }},
		{"inject_taken_in_total", "Branches that did.", counter, func(f *figures) float64 { return float64(f.runs.TakenIn) }},
		{"inject_paced_total", "Times that a member was told to keep an origin's branches back.", counter, func(f *figures) float64 { return float64(f.runs.Paced) }},
		{"inject_waits_total", "Times that a function found no room to send a branch, and waited.", counter, func(f *figures) float64 { return float64(f.runs.Waits) }},
		{"inject_stuck_total", "Functions ended because they waited so and the backlog was full.", counter, func(f *figures) float64 { return float64(f.runs.Stuck) }},
		{"inject_awaiting", "Branches that wait for room for an instance.", gauge, func(f *figures) float64 { return float64(f.runs.Sizes.Awaiting) }},
		{"inject_awaited_total", "Branches that waited for room for an instance.", counter, func(f *figures) float64 { return float64(f.runs.Awaited) }},
		{"inject_pressed_total", "Times that a function which keeps scratch here was found in the way of an older one that waited for room.", counter, func(f *figures) float64 { return float64(f.runs.Pressed) }},
		{"inject_yielded_total", "Functions started here that were ended to let older ones have room.", counter, func(f *figures) float64 { return float64(f.runs.Yielded) }},
		{"inject_invocations", "Invocations with something here.", gauge, func(f *figures) float64 { return float64(f.runs.Sizes.Invocations) }},
		{"inject_under_way", "Branches and reports sent from here that nobody has acknowledged yet.", gauge, func(f *figures) float64 { return float64(f.runs.Sizes.Records) }},
		{"inject_put_off_total", "Ends of branches that waited for their origin's acknowledgements.", counter, func(f *figures) float64 { return float64(f.runs.PutOff) }},
		{"inject_code_cache_bytes", "Images and shard tables in memory.", gauge, func(f *figures) float64 { return float64(f.runs.CacheBytes) }},
		{"inject_code_cache_evictions_total", "Objects that had to go.", counter, func(f *figures) float64 { return float64(f.runs.Evicted) }},
		{"inject_compiled_total", "Functions compiled.", counter, func(f *figures) float64 { return float64(f.engine.Compiled) }},
		{"inject_compiled_elsewhere_total", "Functions compiled by a compiler process.", counter, func(f *figures) float64 { return float64(f.engine.Elsewhere) }},
		{"inject_compiling", "Functions that compiler processes are asked for now.", gauge, func(f *figures) float64 { return float64(f.engine.Compiling) }},
		{"inject_compile_cache_hits_total", "Functions taken from the disk cache.", counter, func(f *figures) float64 { return float64(f.engine.CacheHits) }},
		{"inject_failed_instances_total", "Instances thrown away after a trap or a stop.", counter, func(f *figures) float64 { return float64(f.engine.Failed) }},
		{"inject_machine_code_bytes", "What the machine code of functions is charged.", gauge, func(f *figures) float64 { return float64(f.engine.CodeBytes) }},
		{"inject_longest_load_seconds", "The longest that making a function ready took.", gauge, func(f *figures) float64 { return f.runs.LongestLoad.Seconds() }},
		{"inject_memory_bytes", "What instances are charged for.", gauge, func(f *figures) float64 { return float64(f.engine.Bytes) }},
	}
}

func certUntil(f *figures) float64 {
	if f.n.tls == nil {
		return math.NaN()
	}
	return float64(f.n.tls.Until().Unix())
}

func connectedPeers(f *figures) float64 {
	up := 0.0
	for _, s := range f.n.links.States() {
		if s.Endpoint != nil {
			up++
		}
	}
	return up
}

// collector shows the metrics, read when they are asked for.
type collector struct {
	n       *Node
	build   prometheus.Metric
	metrics []metric
	descs   []*prometheus.Desc
	forms   []*prometheus.Desc // of functions' runs, with the label form
}

func newCollector(n *Node) *collector {
	c := &collector{n: n, metrics: append(nodeMetrics(), functionMetrics()...)}
	labels := prometheus.Labels{"element": n.cfg.Name}
	c.build = prometheus.MustNewConstMetric(prometheus.NewDesc("wherry_build_info", "Which program this is; always 1.", nil,
		prometheus.Labels{"element": n.cfg.Name, "version": n.cfg.Program, "goversion": runtime.Version()}), gauge, 1)
	for _, m := range [][2]string{
		{"runs_total", "Runs of functions here that have ended, by the form of code they ran in."},
		{"run_seconds_total", "What those took without waiting, in whole slices of 100 µs."},
		{"run_bytes_total", "Bytes of their payloads, and of what they replied and sent on."},
	} {
		c.forms = append(c.forms, prometheus.NewDesc("wherry_inject_form_"+m[0], m[1], []string{"form"}, labels))
	}
	for _, m := range c.metrics {
		c.descs = append(c.descs, prometheus.NewDesc("wherry_"+m.name, m.help, nil, labels))
	}
	return c
}

// Describe lists the metrics.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.build.Desc()
	for _, d := range c.forms {
		ch <- d
	}
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect reads them.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ch <- c.build
	f := figures{c.n, c.n.traffic.total(), c.n.rpc.Stats(), c.n.rt.Stats(), c.n.engine.Stats()}
	for _, ran := range c.n.rt.Ran() {
		for i, v := range []float64{float64(ran.Runs), ran.Time.Seconds(), float64(ran.Bytes)} {
			ch <- prometheus.MustNewConstMetric(c.forms[i], counter, v, ran.Form)
		}
	}
	for i, m := range c.metrics {
		if v := m.read(&f); !math.IsNaN(v) {
			ch <- prometheus.MustNewConstMetric(c.descs[i], m.kind, v)
		}
	}
}
