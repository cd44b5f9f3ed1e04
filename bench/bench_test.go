package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
)

// TestMain doubles as the benchmark's processes.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "role" {
		if err := Role(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestRun runs each benchmark, short, and looks at its fields: that they are
// there and possible. How large they are is no test's business.
func TestRun(t *testing.T) {
	for _, c := range []struct {
		Config
		fields []string
	}{
		{Config{Kind: "verbs", Transport: "shm", Rounds: 2000}, []string{"send_rtt_ns_p50", "get_8b_ns_p50", "put_8b_ns_p50", "fetch_add_ns_p50", "allocs_per_op"}},
		{Config{Kind: "verbs", Transport: "tcp", Rounds: 1000}, []string{"send_rtt_ns_p50", "get_8b_ns_p50"}},
		{Config{Kind: "chase", Transport: "tcp", Servers: 4, Rounds: 40}, []string{"inject_over_get", "inject_over_am", "header_bytes", "first_use_us"}},
		{Config{Kind: "chase", Transport: "shm", Servers: 1, Rounds: 40}, []string{"window_ns_per_hop", "native_ns_per_hop", "window_ns_per_hop_256k"}},
		{Config{Kind: "inject", Transport: "shm", Rounds: 1000}, []string{"cached_rtt_ns_p50", "send_rtt_ns_p50"}},
	} {
		t.Run(fmt.Sprintf("%s-%s", c.Kind, c.Transport), func(t *testing.T) {
			if c.Pin = true; c.Kind != "chase" { // as the commands have it
				c.Policy = fabric.Latency
			}
			c.Command = []string{os.Args[0], "role"}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			r, err := Run(ctx, c.Config)
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s", text)
			for _, f := range c.fields {
				v, ok := r.Get(f).(json.Number)
				if n, err := v.Float64(); !ok || err != nil || n < 0 {
					t.Errorf("%s is %v (%v)", f, r.Get(f), err)
				}
			}
			if h, ok := r.Get("header_bytes").(json.Number); ok && h.String() > "26" {
				t.Errorf("a cached injection has %s bytes of header", h)
			}
		})
	}
}
