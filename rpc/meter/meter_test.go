package meter

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/tcp"
	"github.com/wherry-fabric/wherry/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMeter(t *testing.T) {
	var m Meter
	tr, err := tcp.New(tcp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	el, err := fabric.New(fabric.Config{Name: "loop", Transports: []fabric.Transport{tr}})
	if err != nil {
		t.Fatal(err)
	}
	defer el.Close()
	deny := rpc.Authorize(func(_ fabric.Principal, call string) error {
		if call == "secret" {
			return errors.New("it is secret")
		}
		return nil
	})
	p, err := rpc.New(el, rpc.Config{Callers: []rpc.CallerInterceptor{m.Caller}, Servers: []rpc.ServerInterceptor{m.Server, deny}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	addr, err := el.Listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ep, err := el.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	echo := func(_ context.Context, c *rpc.Call) ([]byte, error) { return c.Req, nil }
	for _, name := range []string{"echo", "secret"} {
		if err := p.Register(name, echo, rpc.Options{Inline: true}); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		if _, err := p.Call(t.Context(), ep, "echo", make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Call(t.Context(), ep, "secret", nil); !errors.Is(err, rpc.ErrDenied) {
		t.Fatal(err)
	}
	for side, rows := range map[string][]Row{"calls": m.Calls(), "served": m.Served()} {
		if len(rows) != 2 || rows[0].Name != "echo" || rows[0].Count != 10 || rows[0].Bytes != 1000 || rows[0].Failed != 0 || rows[0].Active != 0 {
			t.Errorf("%s: %+v", side, rows)
		}
		if s := rows[1]; s.Count != 1 || s.Failed != 1 || s.Denied != 1 {
			t.Errorf("%s: %+v", side, s)
		}
		if q := rows[0].Quantile(0.5); q <= 0 || rows[0].Total <= 0 {
			t.Errorf("%s: half of the calls took %v, all %v", side, q, rows[0].Total)
		}
	}
}

func TestBuckets(t *testing.T) {
	for d, want := range map[time.Duration]int{-1: 0, 0: 0, 1023: 0, 1024: 1, 2047: 1, 2048: 2, time.Hour: Buckets - 1, 1 << 40: 31} {
		if got := bucket(d); got != want {
			t.Errorf("%v is in bucket %d, not %d", d, got, want)
		}
		if want < Buckets-1 && d >= BucketEnd(want) {
			t.Errorf("%v is not below %v", d, BucketEnd(want))
		}
	}
	r := Row{Count: 4, Buckets: [Buckets]uint64{3: 3, 9: 1}}
	if r.Quantile(0.5) != BucketEnd(3) || r.Quantile(1) != BucketEnd(9) {
		t.Errorf("%v, %v", r.Quantile(0.5), r.Quantile(1))
	}
}

func TestNamesAreBounded(t *testing.T) {
	var m Meter
	for i := range maxNames + 50 {
		m.find(&m.calls, fmt.Sprint(i)).begin(1, nil)(nil)
	}
	rows := m.Calls()
	if len(rows) != maxNames+1 || rows[0].Name != Other || rows[0].Count != 50 {
		t.Errorf("%d rows, the first %+v", len(rows), rows[0])
	}
}
