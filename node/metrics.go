package node

import (
	"github.com/prometheus/client_golang/prometheus"
)

// collector shows the node's own counters and levels, read when they are asked for.
type collector struct {
	n     *Node
	descs []*prometheus.Desc
	reads []func(*Node) float64
	kinds []prometheus.ValueType
}

func newCollector(n *Node) *collector {
	c := &collector{n: n}
	labels := prometheus.Labels{"element": n.cfg.Name}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	for _, m := range []struct {
		name, help string
		kind       prometheus.ValueType
		read       func(*Node) float64
	}{
		{"wherry_endpoints", "Connections to peers and clients.", gauge, func(n *Node) float64 { return float64(len(n.el.Endpoints())) }},
		{"wherry_peers_connected", "Static peers that are connected.", gauge, connectedPeers},
		{"wherry_messages_sent_total", "Messages of normal class sent.", counter, func(n *Node) float64 { return float64(n.traffic.total().NormalFrames) }},
		{"wherry_message_bytes_sent_total", "Bytes of those messages.", counter, func(n *Node) float64 { return float64(n.traffic.total().NormalBytes) }},
		{"wherry_frames_sent_total", "Frames of any kind sent: messages, operations, credit.", counter, func(n *Node) float64 { return float64(n.traffic.total().SentFrames) }},
		{"wherry_frame_bytes_sent_total", "Bytes of those frames.", counter, func(n *Node) float64 { return float64(n.traffic.total().SentBytes) }},
		{"wherry_outbox_bytes", "Messages and answers that wait for credit or room.", gauge, func(n *Node) float64 { s := n.traffic.total(); return float64(s.Outbox + s.Reserved) }},
		{"wherry_lent_bytes", "Memory that datasets and loads take.", gauge, func(n *Node) float64 { return float64(n.data.used()) }},
		{"wherry_lent_limit_bytes", "Memory that may be lent.", gauge, func(n *Node) float64 { return float64(n.cfg.Memory) }},
		{"wherry_segment_bytes", "Memory of all segments, those of calls included.", gauge, func(n *Node) float64 { return float64(n.el.LentBytes()) }},
		{"wherry_datasets", "Datasets that this node holds a shard of.", gauge, func(n *Node) float64 { return float64(n.data.datasets()) }},
		{"wherry_loads", "Loads under way.", gauge, func(n *Node) float64 { return float64(n.data.loading()) }},
		{"wherry_loads_total", "Loads that became visible.", counter, func(n *Node) float64 { return float64(n.data.committed.Load()) }},
		{"wherry_loads_failed_total", "Loads that were given up.", counter, func(n *Node) float64 { return float64(n.data.aborted.Load()) }},
		{"wherry_load_bytes_total", "Bytes written into shards.", counter, func(n *Node) float64 { return float64(n.data.bytes.Load()) }},
		{"wherry_rpc_calls_total", "Calls made.", counter, func(n *Node) float64 { return float64(n.rpc.Stats().Calls) }},
		{"wherry_rpc_calls_failed_total", "Calls made that returned an error.", counter, func(n *Node) float64 { return float64(n.rpc.Stats().Failed) }},
		{"wherry_rpc_served_total", "Calls served.", counter, func(n *Node) float64 { return float64(n.rpc.Stats().Served) }},
		{"wherry_rpc_served_errors_total", "Calls served with an error.", counter, func(n *Node) float64 { return float64(n.rpc.Stats().HandlerErrors) }},
		{"wherry_rpc_refused_total", "Calls turned away: busy, or unknown.", counter, func(n *Node) float64 { return float64(n.rpc.Stats().Refused) }},
		{"wherry_rpc_active", "Calls being served.", gauge, func(n *Node) float64 { return float64(n.rpc.Stats().Active) }},
	} {
		c.descs = append(c.descs, prometheus.NewDesc(m.name, m.help, nil, labels))
		c.reads = append(c.reads, m.read)
		c.kinds = append(c.kinds, m.kind)
	}
	return c
}

func connectedPeers(n *Node) float64 {
	up := 0.0
	for _, s := range n.links.States() {
		if s.Endpoint != nil {
			up++
		}
	}
	return up
}

// Describe lists the metrics.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect reads them.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	for i, d := range c.descs {
		ch <- prometheus.MustNewConstMetric(d, c.kinds[i], c.reads[i](c.n))
	}
}
