package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/wherry-fabric/wherry/rpc/meter"
)

// callCollector shows the calls of the node's RPC by their name: the control
// calls, and those of what is built on the node.
type callCollector struct {
	n                                 *Node
	seconds, failures, bytes, running *prometheus.Desc
}

// bucketStep takes every second bucket of the meter: a histogram of each name has
// then 16, each up to four times the one before.
const bucketStep = 2

func newCallCollector(n *Node) *callCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("wherry_rpc_call_"+name, help, append([]string{"side", "call"}, labels...), prometheus.Labels{"element": n.cfg.Name})
	}
	return &callCollector{n: n,
		seconds:  desc("seconds", "How long calls took, by name, made here or served here."),
		failures: desc("failures_total", "Calls that ended with an error, by name and reason.", "reason"),
		bytes:    desc("request_bytes_total", "Bytes of the calls' requests."),
		running:  desc("running", "Calls that have begun and not ended.")}
}

func (c *callCollector) descs() []*prometheus.Desc {
	return []*prometheus.Desc{c.seconds, c.failures, c.bytes, c.running}
}

// Describe lists the metrics.
func (c *callCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs() {
		ch <- d
	}
}

// Collect reads them.
func (c *callCollector) Collect(ch chan<- prometheus.Metric) {
	c.side(ch, "made", c.n.meter.Calls())
	c.side(ch, "served", c.n.meter.Served())
}

func (c *callCollector) side(ch chan<- prometheus.Metric, side string, rows []meter.Row) {
	for i := range rows {
		r := &rows[i]
		count, ends := uint64(0), make(map[float64]uint64, meter.Buckets/bucketStep)
		for b, n := range r.Buckets {
			if count += n; b%bucketStep == 0 {
				ends[meter.BucketEnd(b).Seconds()] = count
			}
		}
		ch <- prometheus.MustNewConstHistogram(c.seconds, count, r.Total.Seconds(), ends, side, r.Name)
		for reason, n := range map[string]uint64{"denied": r.Denied, "busy": r.Busy, "late": r.Late, "other": r.Failed - r.Denied - r.Busy - r.Late} {
			ch <- prometheus.MustNewConstMetric(c.failures, prometheus.CounterValue, float64(n), side, r.Name, reason)
		}
		ch <- prometheus.MustNewConstMetric(c.bytes, prometheus.CounterValue, float64(r.Bytes), side, r.Name)
		ch <- prometheus.MustNewConstMetric(c.running, prometheus.GaugeValue, float64(r.Active), side, r.Name)
	}
}
