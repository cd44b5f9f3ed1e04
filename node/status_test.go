package node

import (
	"errors"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

func TestStatus(t *testing.T) {
	ts := tokensOf(t, map[string]cluster.Caps{"node": cluster.CapMember, "ops": cluster.CapAdmin, "ann": cluster.CapRead, "bob": cluster.CapInject})
	n, _ := run(t, Config{Name: "n1", Listen: []string{"tcp://127.0.0.1:0"}, Tokens: ts, Memory: 1 << 20, CodeCache: t.TempDir()})
	for name, payload := range map[string]string{"echo": "x", "chase": "no such table"} {
		img, err := xrdma.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := n.Runtime().Prepare(img, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			_, err = f.Do(t.Context(), inject.Root{Payload: []byte(payload)}, nil)
		}
		if (err == nil) != (name == "echo") {
			t.Fatalf("%s: %v", name, err)
		}
		f.Close()
	}
	for _, tc := range []struct {
		who           string
		err           error
		listed, other int
	}{{"ops", nil, 1, 0}, {"ann", nil, 1, 1}, {"bob", cluster.ErrForbidden, 0, 0}} {
		el, p := guest(t, ts, tc.who)
		ep, err := el.Dial(t.Context(), n.Addrs()[0])
		if err != nil {
			t.Fatal(err)
		}
		s, err := control.Do[control.Status](t.Context(), p, ep, control.CallStatus, control.StatusRequest{Version: control.Version})
		if !errors.Is(err, tc.err) {
			t.Fatalf("%s: %v", tc.who, err)
		}
		if err != nil {
			continue
		}
		checkStatus(t, s)
		if len(s.Endpoints) != tc.listed || s.EndpointsLeft != tc.other {
			t.Errorf("%s sees %d endpoints and %d unlisted ones, want %d and %d", tc.who, len(s.Endpoints), s.EndpointsLeft, tc.listed, tc.other)
		}
		if e := s.Endpoints[0]; e.Principal != tc.who || !e.Asker || e.Transport != "tcp" || e.Shared || e.Window == 0 || e.Credit == 0 || e.Credit > e.Window {
			t.Errorf("%s's own endpoint: %+v", tc.who, e)
		}
		info, err := control.Do[control.Info](t.Context(), p, ep, control.CallInfo, control.InfoRequest{Version: control.Version})
		if err != nil || len(info.Forms) != 1 || info.Forms[0] != "wasm32" {
			t.Errorf("info: %+v, %v", info, err)
		}
	}
}

func checkStatus(t *testing.T, s *control.Status) {
	t.Helper()
	if s.Name != "n1" || len(s.Forms) != 1 || len(s.Transports) != 1 || s.Transports[0].Endpoints == 0 || len(s.Transports[0].Listening) != 1 {
		t.Errorf("%+v", s)
	}
	if m := s.Memory; m != (control.MemoryStatus{LimitBytes: 1 << 20}) {
		t.Errorf("memory: %+v", m)
	}
	if q := s.Queues; q.Runs != 6 || q.Running != 0 || q.Futures != 0 {
		t.Errorf("queues: %+v", q)
	}
	if len(s.Functions) != 2 {
		t.Fatalf("functions: %+v", s.Functions)
	}
	for _, f := range s.Functions {
		failed := map[string]uint64{"echo": 0, "chase": 3}[f.Name]
		if f.Runs != 3 || f.Errors != failed || f.IdleMs < 0 || len(f.ID) != 64 || f.Bytes == 0 || len(f.Forms) != 1 {
			t.Errorf("function: %+v", f)
		}
	}
	c := s.CodeCache
	if c.Memory.Entries != 2 || c.Memory.Bytes == 0 || c.Memory.Limit < c.Memory.Bytes || c.Disk == nil || c.Disk.Misses == 0 || c.Compiled == 0 {
		t.Errorf("code cache: %+v, disk %+v", c, c.Disk)
	}
}
