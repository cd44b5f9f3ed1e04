package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/schemes"
	"github.com/wherry-fabric/wherry/internal/sockdir"
	"github.com/wherry-fabric/wherry/pool/component"
	"github.com/wherry-fabric/wherry/rpc"
)

func TestMain(m *testing.M) {
	if err := sockdir.Shorten(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func tokens(t testing.TB, caps cluster.Caps, names ...string) *cluster.Tokens {
	t.Helper()
	all := map[string]cluster.Caps{}
	for _, name := range names {
		all[name] = caps
	}
	return tokensOf(t, all)
}

func tokensOf(t testing.TB, all map[string]cluster.Caps) *cluster.Tokens {
	t.Helper()
	var list []cluster.Token
	for name, caps := range all {
		tok, err := cluster.NewToken(name, caps)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, tok)
	}
	ts, err := cluster.NewTokens(list)
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

// run starts a node and returns what stops it in order.
func run(t testing.TB, cfg Config) (*Node, func() error) {
	t.Helper()
	n, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	stop := func() error { cancel(); err := <-done; done <- err; return err }
	t.Cleanup(func() { stop() })
	return n, stop
}

func get(t testing.TB, url string) (int, string) {
	t.Helper()
	client := http.Client{Timeout: patience}
	defer client.CloseIdleConnections()
	r, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func TestHTTP(t *testing.T) {
	n, err := New(Config{Name: "n1", Listen: []string{"tcp://127.0.0.1:0"}, Tokens: tokens(t, cluster.CapMember, "node"), HTTP: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	extra := prometheus.NewCounter(prometheus.CounterOpts{Name: "extra_total", Help: "Of what is built on the node."})
	if err := n.AddCollector(extra); err != nil {
		t.Fatal(err)
	}
	if n.AddCollector(extra) == nil {
		t.Error("the same collector was taken twice")
	}
	done := make(chan error, 1)
	go func() { done <- n.Run(t.Context()) }()
	base := "http://" + n.HTTPAddr()
	code, text := get(t, base+"/metrics")
	for _, m := range []string{`wherry_endpoints{element="n1"} 0`, `wherry_lent_limit_bytes{element="n1"} 1.073741824e+09`, "wherry_rpc_served_total", `wherry_inject_form_runs_total{element="n1",form="wasm32"} 0`, "extra_total 0", "go_goroutines", "process_open_fds"} {
		if code != 200 || !strings.Contains(text, m) {
			t.Errorf("/metrics (%d) has no %s", code, m)
		}
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/other": 404} {
		if code, _ := get(t, base+path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	n.stopping.Store(true)
	if code, text := get(t, base+"/readyz"); code != 503 || text != "stopping\n" {
		t.Errorf("/readyz of a stopping node: %d %q", code, text)
	}
	n.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// ownHTTP is an address of loopback that no other test uses: nobody else gets the port there, once it is free.
const ownHTTP = "127.7.7.8:0"

// A node that never ran, or did not start, leaves nothing behind that listens.
func TestHTTPWithoutRun(t *testing.T) {
	cfg := Config{Name: "n1", Listen: []string{"tcp://127.0.0.1:0"}, Tokens: tokens(t, cluster.CapMember, "node"), HTTP: ownHTTP}
	n, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	taken, free := n.Addrs()[0], n.HTTPAddr()
	second := cfg
	second.Name, second.Listen = "n2", []string{taken}
	ln, err := net.Listen("tcp", ownHTTP)
	if err != nil {
		t.Fatal(err)
	}
	second.HTTP = ln.Addr().String()
	ln.Close()
	if _, err := New(second); err == nil {
		t.Fatal("two nodes listen at one address")
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	for _, addr := range []string{free, second.HTTP} {
		if c, err := net.DialTimeout("tcp", addr, 5*time.Second); err == nil {
			c.Close()
			t.Errorf("%s still takes connections", addr)
		}
	}
}

// TestCallMetrics: the control calls are counted by name, refused ones by reason.
func TestCallMetrics(t *testing.T) {
	member, _ := cluster.NewToken("node", cluster.CapMember)
	ann, _ := cluster.NewToken("ann", cluster.CapInject)
	ts, err := cluster.NewTokens([]cluster.Token{member, ann})
	if err != nil {
		t.Fatal(err)
	}
	n, _ := run(t, Config{Name: "n1", Listen: []string{"tcp://127.0.0.1:0"}, Tokens: ts, HTTP: "127.0.0.1:0"})
	el, p := guest(t, ts, "ann")
	ep, err := el.Dial(t.Context(), n.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := control.Do[control.Info](t.Context(), p, ep, control.CallInfo, control.InfoRequest{Version: control.Version}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = control.Do[control.Status](t.Context(), p, ep, control.CallStatus, control.StatusRequest{Version: control.Version})
	if !errors.Is(err, cluster.ErrForbidden) {
		t.Fatal(err)
	}
	_, text := get(t, "http://"+n.HTTPAddr()+"/metrics")
	info, status := `call="wherry.info",element="n1",`, `call="wherry.status",element="n1",`
	for _, want := range []string{
		`wherry_rpc_call_seconds_count{` + info + `side="served"} 3`,
		`wherry_rpc_call_seconds_bucket{` + info + `side="served",le="+Inf"} 3`,
		`wherry_rpc_call_request_bytes_total{` + info + `side="served"} 39`, // three times {"version":1}
		`wherry_rpc_call_running{` + info + `side="served"} 0`,
		`wherry_rpc_call_failures_total{` + info + `reason="denied",side="served"} 0`,
		`wherry_rpc_call_seconds_count{` + status + `side="served"} 1`,
		`wherry_rpc_call_failures_total{` + status + `reason="denied",side="served"} 1`,
		`wherry_rpc_call_failures_total{` + status + `reason="other",side="served"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	if n.rpc.Stats().Calls == 0 && strings.Contains(text, `side="made"`) {
		t.Error("calls made are shown, and none was")
	}
	// Of the calls that this node makes.
	if err := n.RPC().Register("echo", func(_ context.Context, c *rpc.Call) ([]byte, error) { return c.Req, nil }, rpc.Options{Inline: true}); err != nil {
		t.Fatal(err)
	}
	self, err := n.Element().Dial(t.Context(), n.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.RPC().Call(t.Context(), self, "echo", []byte("four")); err != nil {
		t.Fatal(err)
	}
	_, text = get(t, "http://"+n.HTTPAddr()+"/metrics")
	for _, side := range []string{"made", "served"} {
		if want := `wherry_rpc_call_request_bytes_total{call="echo",element="n1",side="` + side + `"} 4` + "\n"; !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
}

func TestNodesThatDoNotStart(t *testing.T) {
	dir := t.TempDir()
	good := tokens(t, cluster.CapMember, "node")
	ok := Config{Name: "n1", Listen: []string{"tcp://127.0.0.1:0"}, Tokens: good}
	taken, _ := run(t, Config{Name: "n0", Listen: []string{"tcp://127.0.0.1:0"}, Tokens: good, HTTP: "127.0.0.1:0"})
	socket, _ := run(t, Config{Name: "n0s", Listen: []string{"shm://" + filepath.Join(dir, "node.sock")}, Tokens: good})
	open := filepath.Join(dir, "open")
	tok, _ := good.Lookup("node")
	if err := errors.Join(os.WriteFile(open, []byte(tok.Line()), 0o600), os.Chmod(open, 0o644)); err != nil { // whatever the umask
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty")
	os.WriteFile(empty, nil, 0o600)
	for name, tc := range map[string]struct {
		edit func(c *Config)
		says string
	}{
		"no name":                {func(c *Config) { c.Name = "" }, "--name"},
		"a bad name":             {func(c *Config) { c.Name = "a b" }, "letters, digits"},
		"nowhere to listen":      {func(c *Config) { c.Listen = nil }, "listen names no address"},
		"no scheme":              {func(c *Config) { c.Listen = []string{"127.0.0.1:1"} }, "scheme"},
		"two in one":             {func(c *Config) { c.Listen = []string{"tcp://127.0.0.1:0,tcp://127.0.0.1:0"} }, "give each by itself (--listen again)"},
		"unknown transport":      {func(c *Config) { c.Listen = []string{"udp://127.0.0.1:1"} }, "only shm and tcp"},
		"beyond loopback":        {func(c *Config) { c.Listen = []string{"tcp://192.0.2.1:7000"} }, "beyond loopback TLS is needed"},
		"every address":          {func(c *Config) { c.Listen, c.Insecure = []string{"tcp://0.0.0.0:0"}, true }, "--advertise"},
		"a far http":             {func(c *Config) { c.HTTP = ":9000" }, "keep to loopback"},
		"http in use":            {func(c *Config) { c.HTTP = taken.HTTPAddr() }, taken.HTTPAddr() + ": bind: address already in use: end what listens there (is this node running already?), or give another address (--http, or http in the configuration file)"},
		"an address in use":      {func(c *Config) { c.Listen = taken.Addrs() }, "address already in use: end what listens there (is this node running already?), or give another address (--listen, or listen in the configuration file)"},
		"a socket in use":        {func(c *Config) { c.Listen = socket.Addrs() }, "node.sock: address already in use: end what listens there"},
		"no tokens":              {func(c *Config) { c.Tokens = nil }, "token_file"},
		"an absent token file":   {func(c *Config) { c.Tokens, c.TokenFile = nil, filepath.Join(dir, "x") }, "no such file"},
		"an open token file":     {func(c *Config) { c.Tokens, c.TokenFile = nil, open }, "chmod 600"},
		"an empty token file":    {func(c *Config) { c.Tokens, c.TokenFile = nil, empty }, "capability member"},
		"no member token":        {func(c *Config) { c.Tokens = tokens(t, cluster.CapAdmin, "root") }, "capability member"},
		"two member tokens":      {func(c *Config) { c.Tokens = tokens(t, cluster.CapMember, "a", "b") }, "a, b"},
		"a token without member": {func(c *Config) { c.Tokens, c.Token = tokens(t, cluster.CapAdmin, "root"), "root" }, "needs member"},
		"a relative data root":   {func(c *Config) { c.DataRoots = []string{"data"} }, "absolute"},
		"an absent data root":    {func(c *Config) { c.DataRoots = []string{filepath.Join(dir, "x")} }, "no such file"},
		"a bad policy":           {func(c *Config) { c.Policy = "fast" }, "balanced, latency or efficient"},
		"little memory":          {func(c *Config) { c.Memory = 100 }, "at least"},
		"little for native code": {func(c *Config) { c.Native, c.LimitsByName = nativeWorker, map[string]string{"memory_bytes": "2GiB"} }, "one half of memory_bytes is wasm's"},
		"much memory":            {func(c *Config) { c.Memory = 100 << 40 }, "this machine has"},
		"a far peer":             {func(c *Config) { c.Peers = []cluster.Member{{Name: "x", Addrs: []string{"tcp://10.0.0.1:70"}}} }, "x (tcp://10.0.0.1:70)"},
		"a bad peer":             {func(c *Config) { c.Peers = []cluster.Member{{Name: "x"}} }, "no address"},
	} {
		cfg := ok
		tc.edit(&cfg)
		n, err := New(cfg)
		if err == nil {
			n.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	n, err := New(Config{Name: "n1", Listen: []string{"tcp://0.0.0.0:0"}, Advertise: []string{"tcp://192.0.2.1:7000"}, Insecure: true, Tokens: good})
	if err != nil {
		t.Fatal(err)
	}
	if got := n.Addrs(); len(got) != 1 || got[0] != "tcp://192.0.2.1:7000" {
		t.Errorf("advertised: %v", got)
	}
	n.Close()
}

// transportOver is a transport of a scheme.
func transportOver(scheme string) (fabric.Transport, error) {
	picked, err := schemes.All().Pick(scheme)
	if err != nil {
		return nil, err
	}
	return picked[0].New(nil)
}

// guest is an element with a token, for what no well-behaved client does.
func guest(t testing.TB, ts *cluster.Tokens, name string) (*fabric.Element, *rpc.Peer) {
	t.Helper()
	return guestOver(t, "tcp", ts, name)
}

func guestOver(t testing.TB, scheme string, ts *cluster.Tokens, name string) (*fabric.Element, *rpc.Peer) {
	t.Helper()
	auth, err := control.NewAuth(ts, name)
	if err != nil {
		t.Fatal(err)
	}
	return guestOf(t, scheme, auth)
}

func guestOf(t testing.TB, scheme string, auth fabric.Auth) (*fabric.Element, *rpc.Peer) {
	t.Helper()
	tr, err := transportOver(scheme)
	if err != nil {
		t.Fatal(err)
	}
	el, err := fabric.New(fabric.Config{Name: "n2", Transports: []fabric.Transport{tr}, Auth: auth, Several: true})
	if err != nil {
		t.Fatal(err)
	}
	p, err := rpc.New(el, rpc.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close(); el.Close() })
	return el, p
}

func TestHostileRequests(t *testing.T) {
	member, _ := cluster.NewToken("node", cluster.CapMember)
	user, _ := cluster.NewToken("user", cluster.CapRead|cluster.CapWrite)
	ts, err := cluster.NewTokens([]cluster.Token{member, user})
	if err != nil {
		t.Fatal(err)
	}
	peers := []cluster.Member{{Name: "n2", Addrs: []string{"tcp://127.0.0.1:1"}}}
	n, _ := run(t, Config{Name: "n1", Listen: []string{"tcp://127.0.0.1:0"}, Tokens: ts, Peers: peers})
	el, p := guest(t, ts, "user")
	ep, err := el.Dial(t.Context(), n.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Millisecond)
	if n.Peer("n2") != nil {
		t.Error("a client that calls itself n2 passes for a member")
	}
	id := strings.Repeat("a", 32)
	for _, tc := range []struct {
		call, body string
		want       error
	}{
		{control.CallInfo, `[]`, control.ErrRequest},
		{control.CallInfo, `{"unknown":1,"version":7}`, nil},
		{control.CallBegin, `{`, control.ErrRequest},
		{control.CallBegin, `{"load":"short","name":"x"}`, control.ErrRequest},
		{control.CallBegin, `{"load":"` + id + `","name":"../x"}`, cluster.ErrName},
		{control.CallBegin, `{"load":"` + id + `","name":"x","staging":"AAAA"}`, control.ErrRequest},
		{control.CallAlloc, `{"load":"` + id + `","sizes":[1]}`, control.ErrLoad},
		{control.CallBegin, `{"load":"` + id + `","name":"x"}`, nil},
		{control.CallBegin, `{"load":"` + id + `","name":"y"}`, control.ErrLoad},
		{control.CallBegin, `{"load":"b` + id[1:] + `","name":"x"}`, cluster.ErrExists},
		{control.CallFill, `{"load":"` + id + `","pieces":[{"size":1}]}`, control.ErrLoad},
		{control.CallAlloc, `{"load":"` + id + `","sizes":[]}`, control.ErrRequest},
		{control.CallAlloc, `{"load":"` + id + `","sizes":[18446744073709551615]}`, control.ErrRequest},
		{control.CallAlloc, `{"load":"` + id + `","sizes":[70368744177664,70368744177664]}`, control.ErrMemory},
		{control.CallAlloc, `{"load":"` + id + `","sizes":[100]}`, nil},
		{control.CallAlloc, `{"load":"` + id + `","sizes":[100]}`, nil}, // a second window, not the first again
		{control.CallAlloc, `{"load":"` + id + `","sizes":[1` + strings.Repeat(",1", cluster.MaxWindows-2) + `]}`, control.ErrRequest},
		{control.CallFill, `{"load":"` + id + `","pieces":[{"size":1}]}`, control.ErrRequest},
		{control.CallPrepare, `{"load":"` + id + `","table":"AAAA"}`, cluster.ErrTable},
		{control.CallCommit, `{"load":"` + id + `"}`, control.ErrLoad},
		{control.CallOutcome, `{"load":"` + id + `"}`, cluster.ErrForbidden},
		{control.CallStat, `{"name":"x"}`, cluster.ErrNotFound},
		{control.CallTable, `{"name":"x"}`, cluster.ErrNotFound},
		{control.CallRemove, `{"name":"x"}`, cluster.ErrNotFound},
		{control.CallGrant, `{"name":"x","to":"y","rights":"zz"}`, control.ErrRequest},
		{control.CallGrant, `{"name":"x","to":"y","rights":"r"}`, cluster.ErrNotFound},
		{control.CallFile, `{"load":"` + id + `","path":"x.csv"}`, control.ErrPath},
		{control.CallAbort, `{"load":"` + id + `"}`, nil},
		{control.CallAbort, `{"load":"` + id + `"}`, nil},
		{control.CallCommit, `{"load":"` + id + `"}`, control.ErrLoad},
		{control.CallBegin, `{"load":"` + id + `","name":"x"}`, control.ErrLoad},
	} {
		_, err := p.Call(t.Context(), ep, tc.call, []byte(tc.body))
		if err != nil {
			err = control.Err("n1", err)
		}
		if !errors.Is(err, tc.want) {
			t.Errorf("%s %s: %v, want %v", tc.call, tc.body, err, tc.want)
		}
	}
	if n.lent() != (component.Lent{}) || n.data.loading() != 0 {
		t.Errorf("%+v and %d loads are left", n.lent(), n.data.loading())
	}
	// Another client cannot touch a load.
	if _, err := p.Call(t.Context(), ep, control.CallBegin, []byte(`{"load":"c`+id[1:]+`","name":"x"}`)); err != nil {
		t.Fatal(err)
	}
	el2, p2 := guest(t, ts, "user")
	ep2, err := el2.Dial(t.Context(), n.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p2.Call(t.Context(), ep2, control.CallAlloc, []byte(`{"load":"c`+id[1:]+`","sizes":[1]}`)); !errors.Is(control.Err("n1", err), control.ErrLoad) {
		t.Errorf("somebody else's load: %v", err)
	}
	n.stopping.Store(true)
	if _, err := p.Call(t.Context(), ep, control.CallBegin, []byte(`{"load":"d`+id[1:]+`","name":"z"}`)); !errors.Is(control.Err("n1", err), control.ErrStopping) {
		t.Errorf("a stopping node: %v", err)
	}
}

// TestVersionsDoNotRunOut: a client chooses the version, but cannot use up those that follow, nor take one that its name had. Loads of other names, which
// end before it, do not matter.
func TestVersionsDoNotRunOut(t *testing.T) {
	ts := tokens(t, cluster.CapWrite|cluster.CapMember, "user")
	n, _ := run(t, Config{Name: "n1", Listen: []string{"tcp://127.0.0.1:0"}, Tokens: ts})
	el, p := guest(t, ts, "user")
	ep, err := el.Dial(t.Context(), n.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	call := func(call string, req any) error {
		_, err := control.Do[control.Nothing](t.Context(), p, ep, call, req)
		return err
	}
	loads := 0
	begin := func(name string) (control.LoadID, uint64) {
		loads++
		id := control.LoadID(fmt.Sprintf("%0*d", loadIDBytes, loads))
		reply, err := control.Do[control.BeginReply](t.Context(), p, ep, control.CallBegin, control.BeginRequest{Load: id, Name: name})
		if err == nil {
			err = call(control.CallAlloc, control.AllocRequest{Load: id, Sizes: []uint64{8}})
		}
		if err != nil {
			t.Fatal(err)
		}
		return id, reply.NextVersion
	}
	prepare := func(id control.LoadID, name string, version uint64) error {
		table := &cluster.Table{Name: name, Version: version, Kind: cluster.Raw, Sharding: cluster.Sharding{Kind: cluster.Block, Elements: 1},
			Shards: []cluster.Shard{{Element: "n1", Incarnation: n.el.Incarnation(), Addrs: n.Addrs(), Windows: []cluster.Window{{Size: 8}}}}}
		b, err := table.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return call(control.CallPrepare, control.PrepareRequest{Load: id, Table: b})
	}
	for _, c := range []struct {
		version uint64
		want    error
	}{{0, cluster.ErrVersion}, {math.MaxUint64, cluster.ErrVersion}, {maxVersionStep + 2, cluster.ErrVersion}, {maxVersionStep + 1, nil}} {
		id, _ := begin("x")
		if err := prepare(id, "x", c.version); !errors.Is(err, c.want) {
			t.Errorf("version %d: %v, want %v", c.version, err, c.want)
		}
		if err := call(control.CallAbort, control.LoadRequest{Load: id}); err != nil {
			t.Fatal(err)
		}
	}
	slow, low := begin("slow")
	id, _ := begin("x")
	if err := errors.Join(prepare(id, "x", low+20), call(control.CallCommit, control.LoadRequest{Load: id}), call(control.CallRemove, control.NameRequest{Name: "x"})); err != nil {
		t.Fatal(err)
	}
	id, next := begin("x")
	if err := prepare(id, "x", low+20); next != low+21 || !errors.Is(err, cluster.ErrVersion) {
		t.Errorf("the version that was removed, again: %v; the lowest is said to be %d", err, next)
	}
	if err := prepare(slow, "slow", low); err != nil {
		t.Errorf("a name that had no version since the load began: %v", err)
	}
}

func TestStopWaitsForCalls(t *testing.T) {
	ts := tokens(t, cluster.CapMember|cluster.CapWrite, "node")
	n, stop := run(t, Config{Name: "n1", Listen: []string{"tcp://127.0.0.1:0"}, Tokens: ts, StopTime: 5 * time.Second})
	began := make(chan struct{})
	if err := n.RPC().Register("slow", func(context.Context, *rpc.Call) ([]byte, error) {
		close(began)
		time.Sleep(50 * time.Millisecond)
		return []byte("done"), nil
	}, rpc.Options{}); err != nil {
		t.Fatal(err)
	}
	el, p := guest(t, ts, "node")
	ep, err := el.Dial(t.Context(), n.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	answer := make(chan string, 1)
	go func() {
		b, err := p.Call(t.Context(), ep, "slow", nil)
		answer <- string(b) + ";" + errText(err)
	}()
	select {
	case <-began:
	case <-time.After(patience):
		t.Fatal("the call does not begin")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if got := <-answer; got != "done;" {
		t.Errorf("a call under way at the stop: %q", got)
	}
}

// TestSealedKeys: whoever may only write a sealed dataset hears what would help.
func TestSealedKeys(t *testing.T) {
	s := &store{shards: map[string]*shard{"d": {version: 1}}}
	for caps, want := range map[cluster.Caps]string{cluster.CapWrite: "its capabilities (write) do not include that", cluster.CapRead | cluster.CapWrite: "its owner or an admin can grant that"} {
		_, _, err := s.keys("d", 1, cluster.Principal{Name: "ann", Caps: caps}, nil, func() fabric.Rights { return fabric.RightWrite })
		if !errors.Is(err, cluster.ErrForbidden) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want …%s…", caps, err, want)
		}
	}
}

func TestFillRanges(t *testing.T) {
	el, _ := guest(t, tokens(t, cluster.CapMember, "node"), "node")
	seg, err := el.NewSegment(1<<20, fabric.Sealed)
	if err != nil {
		t.Fatal(err)
	}
	windows := []window{{seg: seg, size: 1000}}
	ranges, total, err := fillRanges(windows, []control.Piece{{Offset: 990, From: 5, Size: 10}, {Size: 1000}})
	if err != nil || total != 1010 || len(ranges) != 2 || len(ranges[0].Dst) != 10 || ranges[0].Offset != 5 {
		t.Errorf("%v, %d, %v", ranges, total, err)
	}
	const most = ^uint64(0)
	for name, p := range map[string][]control.Piece{"window -1": {{Window: -1}}, "window 1": {{Window: 1}}, "past the end": {{Offset: 991, Size: 10}},
		"offset wraps": {{Offset: most, Size: 1}}, "size wraps": {{Offset: 1, Size: most}}, "past the used part": {{Offset: 1000, Size: 1}},
		"too many": make([]control.Piece, control.MaxPieces+1)} {
		if _, _, err := fillRanges(windows, p); !errors.Is(err, control.ErrRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	windows[0] = window{seg: seg, size: 1 << 20}
	large := make([]control.Piece, maxFillBytes>>20+1)
	for i := range large {
		large[i].Size = 1 << 20
	}
	if _, _, err := fillRanges(windows, large); !errors.Is(err, control.ErrRequest) {
		t.Errorf("too large together: %v", err)
	}
}

func TestTrafficNeverFalls(t *testing.T) {
	ts := tokens(t, cluster.CapMember|cluster.CapWrite, "node")
	n, _ := run(t, Config{Name: "n1", Listen: []string{"tcp://127.0.0.1:0"}, Tokens: ts})
	el, p := guest(t, ts, "node")
	last := fabric.EndpointStats{}
	for range 3 {
		ep, err := el.Dial(t.Context(), n.Addrs()[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Call(t.Context(), ep, control.CallInfo, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		ep.Close()
		for len(n.el.Endpoints()) > 0 {
			time.Sleep(time.Millisecond)
		}
		now := n.traffic.total()
		if now.SentFrames <= last.SentFrames || now.SentBytes <= last.SentBytes || now.Outbox != 0 {
			t.Errorf("after %+v came %+v", last, now)
		}
		last = now
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
