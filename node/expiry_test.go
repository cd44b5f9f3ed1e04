package node

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
	"github.com/wherry-fabric/wherry/control"
)

// TestCertificateEnd: status and metrics say when the node's certificate ends, if it has one.
func TestCertificateEnd(t *testing.T) {
	a, err := ca.Init(t.TempDir()+"/ca", "test", ca.DefaultLife)
	if err != nil {
		t.Fatal(err)
	}
	files := certificate(t, a, ca.Request{Principal: cluster.Principal{Name: "n1", Caps: cluster.CapMember | cluster.CapRead}, Node: true, Hosts: []string{"127.0.0.1"}, Term: 90 * 24 * time.Hour})
	issued, err := a.List()
	if err != nil || len(issued) != 1 {
		t.Fatalf("%v, %v", issued, err)
	}
	ts := tokens(t, cluster.CapMember|cluster.CapRead, "node")
	for name, c := range map[string]struct {
		cfg  Config
		want time.Time
	}{
		"with":    {Config{TLS: files, Tokens: ts, Listen: []string{"tcp://127.0.0.1:0", "shm://" + t.TempDir() + "/s"}}, issued[0].Until},
		"without": {Config{Tokens: ts, Listen: []string{"shm://" + t.TempDir() + "/s"}}, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Name, c.cfg.HTTP = "n1", "127.0.0.1:0"
			n, _ := run(t, c.cfg)
			el, p := guestOver(t, "shm", ts, "node")
			ep, err := el.Dial(t.Context(), n.Addrs()[len(n.Addrs())-1])
			if err != nil {
				t.Fatal(err)
			}
			s, err := control.Do[control.Status](t.Context(), p, ep, control.CallStatus, control.StatusRequest{Version: control.Version})
			if err != nil || !s.CertUntil.Equal(c.want) {
				t.Errorf("status: %v, want %v (%v)", s.CertUntil, c.want, err)
			}
			_, text := get(t, "http://"+n.HTTPAddr()+"/metrics")
			_, rest, there := strings.Cut(text, "\n"+`wherry_cert_until_timestamp_seconds{element="n1"} `)
			if c.want.IsZero() {
				if strings.Contains(text, "wherry_cert_until") {
					t.Error("a metric of a certificate that is not there")
				}
				return
			}
			value, _, _ := strings.Cut(rest, "\n")
			if got, err := strconv.ParseFloat(value, 64); !there || err != nil || got != float64(c.want.Unix()) {
				t.Errorf("/metrics says %q, want %d (%v)", value, c.want.Unix(), err)
			}
		})
	}
}
