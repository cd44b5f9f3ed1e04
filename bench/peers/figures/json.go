package figures

import (
	"encoding/json"
	"io"
	"math"
)

// object is a row as JSON: flat, and it only ever grows. What is not known is left out.
type object struct {
	Benchmark  string   `json:"benchmark"`
	Peer       string   `json:"peer"`
	Version    string   `json:"peer_version,omitempty"`
	Work       Work     `json:"work"`
	Transport  string   `json:"transport"`
	Class      string   `json:"compared_with"`
	Policy     string   `json:"policy"`
	Pinning    string   `json:"pinning"`
	ClientProc int      `json:"gomaxprocs_client,omitempty"`
	ServerProc int      `json:"gomaxprocs_server,omitempty"`
	Status     Status   `json:"status"`
	Reason     string   `json:"reason,omitempty"`
	Install    string   `json:"install,omitempty"`
	Rounds     int      `json:"rounds"`
	Errors     int      `json:"failed_turns,omitempty"`
	TurnMs     float64  `json:"turn_ms"`
	P50        *float64 `json:"rtt_ns_p50,omitempty"`
	P50Least   *float64 `json:"rtt_ns_p50_least,omitempty"`
	P50Most    *float64 `json:"rtt_ns_p50_most,omitempty"`
	P99        *float64 `json:"rtt_ns_p99,omitempty"`
	Mean       *float64 `json:"rtt_ns_mean,omitempty"`
	Calls      *float64 `json:"calls_per_s,omitempty"`
	GBytes     *float64 `json:"gbytes_per_s,omitempty"`
	Allocs     *float64 `json:"allocs_per_op,omitempty"`
	Operations int      `json:"operations"`
	TimesVerbs *float64 `json:"times_wherry_verbs,omitempty"`
	TimesRPC   *float64 `json:"times_wherry_rpc,omitempty"`
	OverNetRPC *float64 `json:"over_net_rpc,omitempty"`
	LeastMost  *float64 `json:"least_over_most,omitempty"`
	BusyLoops  int      `json:"busy_loops,omitempty"`
	WallS      float64  `json:"wall_s"`
	CPU        string   `json:"cpu,omitempty"`
	Cores      int      `json:"cores"`
	OS         string   `json:"os"`
	Kernel     string   `json:"kernel,omitempty"`
	Go         string   `json:"go"`
	Time       string   `json:"time"`
}

// known is a figure rounded to what it can mean, or nil.
func known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	scale := 1.0
	switch a := math.Abs(v); {
	case a > 0 && a < 0.1: // three digits, wherever they begin
		scale = math.Pow(10, 2-math.Floor(math.Log10(a)))
	case a < 10:
		scale = 1000
	case a < 100:
		scale = 10
	}
	v = math.Round(v*scale) / scale
	return &v
}

// object makes a row's JSON form.
func (t *Table) object(r *Row) *object {
	m := t.Machine
	o := &object{Benchmark: "peers", Peer: r.Peer, Version: r.Version, Work: r.Work, Transport: r.Transport, Class: r.Class,
		Policy: r.Policy, Pinning: r.Pinning, Status: r.Status, Reason: r.Reason, Install: r.Install, Rounds: r.Rounds(),
		Errors: r.Errors, TurnMs: t.TurnMs, WallS: r.wall(), CPU: m.CPU, Cores: m.Cores, OS: m.OS, Kernel: m.Kernel, Go: m.Go, Time: m.Time}
	p50 := r.each(func(s Sample) float64 { return s.P50Ns })
	least, most := spread(p50)
	o.P50, o.P50Least, o.P50Most = known(Median(p50)), known(least), known(most)
	o.P99 = known(r.median(func(s Sample) float64 { return s.P99Ns }))
	o.Mean = known(r.median(func(s Sample) float64 { return s.MeanNs }))
	o.Calls = known(r.median(func(s Sample) float64 { return s.CallsPerS }))
	o.GBytes = known(r.median(func(s Sample) float64 { return s.GBytesPerS }))
	o.TimesVerbs, o.TimesRPC = known(r.Times(t.base(r, VerbsPeer))), known(r.Times(t.base(r, RPCPeer)))
	o.OverNetRPC, o.BusyLoops = known(t.overNetRPC(r)), t.BusyLoops
	o.LeastMost = known(r.median(func(s Sample) float64 { return s.LeastOverMost }))
	var allocs []float64
	for _, s := range r.byRound {
		o.Operations += s.Calls
		o.ClientProc, o.ServerProc = s.ClientProcs, s.ServerProcs
		if s.AllocsPerOp >= 0 {
			allocs = append(allocs, s.AllocsPerOp)
		}
	}
	o.Allocs = known(Median(allocs))
	return o
}

// wall is what the row's turns took together, in seconds.
func (r *Row) wall() float64 {
	sum := 0.0
	for _, s := range r.byRound {
		sum += s.WallS
	}
	return math.Round(sum*1000) / 1000
}

// WriteJSON writes one flat object per row, each on a line of its own.
func (t *Table) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	for _, r := range t.Rows {
		if err := enc.Encode(t.object(r)); err != nil {
			return err
		}
	}
	return nil
}
