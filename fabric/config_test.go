package fabric

import (
	"strings"
	"testing"
	"time"
)

func TestConfigValidate(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		says string // in the error; "" for none
	}{
		{"zero", Config{}, ""},
		{"long name", Config{Name: strings.Repeat("x", maxNameBytes+1)}, "name"},
		{"longest name", Config{Name: strings.Repeat("x", maxNameBytes)}, ""},
		{"small window", Config{Limits: Limits{WindowBytes: 2*MaxFrameBytes - 1}}, "WindowBytes"},
		{"huge window", Config{Limits: Limits{WindowBytes: 1<<30 + 1}}, "WindowBytes"},
		{"no operations", Config{Limits: Limits{OpsPerEndpoint: -1}}, "OpsPerEndpoint"},
		{"many operations", Config{Limits: Limits{OpsPerEndpoint: maxOps + 1}}, "OpsPerEndpoint"},
		{"no endpoints", Config{Limits: Limits{Endpoints: -1}}, "Endpoints -1"},
		{"more of one principal than of all", Config{Limits: Limits{Endpoints: 3, EndpointsPerPrincipal: 4}}, "EndpointsPerPrincipal 4"},
		{"none of one principal", Config{Limits: Limits{EndpointsPerPrincipal: -1}}, "EndpointsPerPrincipal -1"},
		{"all of one principal", Config{Limits: Limits{Endpoints: 3, EndpointsPerPrincipal: 3}}, ""},
		{"fewer answers in all than for one", Config{Limits: Limits{ReservedBytesInAll: 8<<20 - 1}}, "ReservedBytesInAll"},
		{"fewer messages in all than for one", Config{Limits: Limits{OutboxBytes: 9, OutboxBytesInAll: 8}}, "OutboxBytesInAll"},
		{"as many in all as for one", Config{Limits: Limits{OutboxBytes: 9, OutboxBytesInAll: 9, ReservedBytesInAll: 8 << 20}}, ""},
		{"negative answers", Config{Limits: Limits{ReservedBytes: -1}}, "ReservedBytes -1"},
		{"negative HELLO", Config{Limits: Limits{HelloTime: -1}}, "HelloTime -1ns"},
		{"negative operations' time", Config{Limits: Limits{OpTime: -time.Second}}, "OpTime -1s"},
		{"negative silence", Config{Limits: Limits{PeerTime: -time.Second}}, "PeerTime -1s"},
		{"operations without end", Config{Limits: Limits{OpTime: 1<<63 - 1}}, ""},
		{"negative memory", Config{Limits: Limits{LentBytes: -1}}, "LentBytes -1"},
		{"negative messages in all", Config{Limits: Limits{OutboxBytesInAll: -1}}, "OutboxBytesInAll -1"},
	} {
		c.cfg.Manual = true
		e, err := New(c.cfg)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil {
			e.Close()
		}
	}
}

func TestParsePolicy(t *testing.T) {
	for _, p := range []Policy{Balanced, Latency, Efficient} {
		if got, err := ParsePolicy(p.String()); err != nil || got != p {
			t.Errorf("%v reads back as %v, %v", p, got, err)
		}
	}
	if _, err := ParsePolicy("brisk"); err == nil || !strings.Contains(err.Error(), "brisk") {
		t.Errorf("an unknown policy: %v", err)
	}
	if s := Policy(9).String(); s != "policy 9" {
		t.Errorf("an unknown policy is called %q", s)
	}
}

func TestKeyHidesItsSecret(t *testing.T) {
	k := Key{Owner: 5, Slot: 6, Generation: 7, Secret: [16]byte{0xab, 0xcd}, Size: 8, Rights: RightRead | RightAtomic}
	if s := k.String(); strings.Contains(s, "abcd") || !strings.Contains(s, "r-a") {
		t.Errorf("a key is shown as %q", s)
	}
	if k.IsZero() || !(Key{}).IsZero() {
		t.Error("IsZero")
	}
}
