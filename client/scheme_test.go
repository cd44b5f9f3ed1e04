package client

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/doctor"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/schemes"
	"github.com/wherry-fabric/wherry/fabric/tcp"
	"github.com/wherry-fabric/wherry/node"
)

// wire is a transport that nothing in this repository knows by name.
type wire struct{ *tcp.Transport }

func (wire) Scheme() string { return "wire" }

// withWire is the list with one entry more.
func withWire() fabric.Schemes {
	s := tcp.Scheme()
	s.Name, s.Example, s.Probe, s.Vital = "wire", "wire://127.0.0.1:7000", "wires", false
	s.New = func(c fabric.Credentials) (fabric.Transport, error) {
		t, err := tcp.New(tcp.Config{TLS: c})
		return wire{t}, err
	}
	s.Here = func(string, string) string { return "wire://127.0.0.1:0" }
	return append(schemes.All(), s)
}

// TestFurtherTransport: an entry in the list is all that node, client and doctor need of a further transport.
func TestFurtherTransport(t *testing.T) {
	tokens := newTokens(t)
	n, err := node.New(node.Config{Name: "n1", Listen: []string{"wire://127.0.0.1:0"}, Tokens: tokens, Token: tokenNode, Schemes: withWire()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	cfg := Config{Nodes: []cluster.Member{{Addrs: n.Addrs()}}, Tokens: tokens, Token: tokenOwner}
	if _, err := Connect(ctx, cfg); err == nil || !strings.Contains(err.Error(), "not in use here, only shm and tcp") {
		t.Errorf("without the entry: %v", err)
	}
	cfg.Schemes = withWire()
	c, err := Connect(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	info, err := c.Info(ctx, "n1")
	if err != nil || !slices.Equal(info.Transports, []string{"wire"}) || !strings.HasPrefix(info.Addrs[0], "wire://") {
		t.Errorf("%+v, %v", info, err)
	}
	for addr, says := range map[string]string{"wire://192.0.2.1:7000": "beyond loopback TLS is needed", "wire://127.0.0.1:none": "is not", "wires://127.0.0.1:1": "only shm and tcp and wire"} {
		bad := node.Config{Name: "n2", Listen: []string{addr}, Tokens: tokens, Token: tokenNode, Schemes: withWire()}
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", addr, err, says)
		}
	}
	checks := doctor.Run(ctx, withWire())
	if i := slices.IndexFunc(checks, func(c doctor.Check) bool { return c.Name == "wires" }); i < 0 || checks[i].State != doctor.Good {
		t.Errorf("doctor: %+v", checks)
	}
}
