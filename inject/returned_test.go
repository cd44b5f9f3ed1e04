package inject_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/tcp"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

// newBare makes an element without a runtime that is connected with others and listens.
func newBare(t testing.TB, name string, others ...*member) *member {
	t.Helper()
	tr, err := tcp.New(tcp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	m := &member{}
	if m.el, err = fabric.New(fabric.Config{Name: name, Transports: []fabric.Transport{tr}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.el.Close() })
	if m.addr, err = m.el.Listen("tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	for _, o := range others {
		ep, err := o.el.Dial(within(t, patience), m.addr)
		if err != nil {
			t.Fatal(err)
		}
		o.eps[name] = ep
	}
	return m
}

// TestNoRuntime: a function that comes to an element without a runtime, at first or on its way, ends its call at once.
func TestNoRuntime(t *testing.T) {
	client, nodes := mesh(t, 1, fabric.Balanced)
	bare := newBare(t, "bare", client, nodes[0])
	table, next := permutation(t, []*member{nodes[0], bare}, 100)
	chase, err := client.rt.Prepare(xrdma.Chase(), table)
	if err != nil {
		t.Fatal(err)
	}
	defer chase.Close()
	echo, err := client.rt.Prepare(xrdma.Echo(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	depth := uint64(1)
	for row := next[0]; row < 50; row = next[row] { // until it has to go to the other one
		depth++
	}
	for name, call := range map[string]func() error{
		"echo": func() error {
			_, err := echo.Do(within(t, patience), inject.Root{To: client.eps["bare"], Payload: []byte("x")}, nil)
			return err
		},
		"chase": func() error {
			_, err := chase.Do(within(t, patience), inject.Root{Element: 0, Payload: xrdma.ChaseArgs(0, depth+1)}, nil)
			return err
		},
		"several": func() error {
			fut, err := chase.Start(within(t, patience), []inject.Root{{Element: 0, Payload: xrdma.ChaseArgs(0, 1)}, {Element: 1, Payload: xrdma.ChaseArgs(50, 1)}}, inject.Options{})
			if err == nil {
				_, err = fut.Wait(within(t, patience))
			}
			return err
		},
	} {
		for range 3 { // as a light future, a visit, and with records
			if err := call(); !errors.Is(err, travel.ErrRefused) || !strings.Contains(err.Error(), "bare takes no functions") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for name, ep := range client.eps {
		if ep.Err() != nil {
			t.Errorf("the endpoint to %s ended: %v", name, ep.Err())
		}
	}
	if _, err := echo.Do(within(t, patience), inject.Root{To: client.eps["n0"], Payload: []byte("x")}, nil); err != nil {
		t.Errorf("afterwards at n0: %v", err)
	}
}

// FuzzReturned: whatever a peer says that came back, nothing panics.
func FuzzReturned(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14})
	f.Add(make([]byte, 13))
	f.Fuzz(func(t *testing.T, head []byte) {
		if _, err := travel.Returned(head, "nobody"); (err == nil) != (len(head) >= 14) || err != nil && !errors.Is(err, travel.ErrProtocol) {
			t.Fatalf("%d bytes: %v", len(head), err)
		}
	})
}
