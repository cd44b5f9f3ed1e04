package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/pool"
	"github.com/wherry-fabric/wherry/pool/component"
)

const (
	// fuzzLoad stands for the identity of a load, which is another one each time:
	// a node remembers those that have ended.
	fuzzLoad = "LOAD"
	// fuzzCalls is how many requests of an input are made.
	fuzzCalls = 8
)

// fuzzRequests are inputs to begin with: a request a line, the call and its body.
var fuzzRequests = []string{
	"info {\"version\":1}\ndata.list {}\nload.outcome {\"load\":\"LOAD\"}",
	"load.begin {\"load\":\"LOAD\",\"name\":\"x\"}\nload.alloc {\"load\":\"LOAD\",\"sizes\":[100,65536]}\nload.fill {\"load\":\"LOAD\",\"pieces\":[{\"size\":1}]}\n" +
		"load.prepare {\"load\":\"LOAD\",\"table\":\"AAAA\"}\nload.commit {\"load\":\"LOAD\"}\nload.abort {\"load\":\"LOAD\"}",
	"load.begin {\"load\":\"LOAD\",\"name\":\"x\",\"replace\":true}\nload.file {\"load\":\"LOAD\",\"path\":\"p.csv\",\"format\":{\"header\":true,\"types\":[\"str\",\"u8\"]}}\nload.abort {\"load\":\"LOAD\"}",
	"load.begin {\"load\":\"LOAD\",\"name\":\"x\",\"staging\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"}\nload.begin {\"load\":\"short\",\"name\":\"../x\"}",
	"data.stat {\"name\":\"x\"}\ndata.table {\"name\":\"x\",\"rights\":\"rw\"}\ndata.grant {\"name\":\"x\",\"to\":\"*\",\"rights\":\"r\"}\ndata.remove {\"name\":\"x\",\"version\":1}",
	"load.alloc {\"load\":\"LOAD\",\"sizes\":[18446744073709551615]}\nload.file {\"load\":\"LOAD\",\"path\":\"p.edges\",\"format\":{\"format\":\"edges\",\"names\":true}}",
	"name-conflict {\"name\":\"n1\",\"incarnation\":\"0123456789abcdef\",\"addrs\":[\"tcp://127.0.0.1:7000\"],\"uptime_ms\":86400000}\nname-conflict {\"name\":\"n1\"}",
	"pool.create {\"name\":\"r\",\"size\":70000}\npool.lookup {\"name\":\"r\",\"rights\":\"rw\"}\npool.grant {\"name\":\"r\",\"to\":\"*\",\"rights\":\"r\"}\npool.discard {\"region\":1,\"ranges\":[{\"off\":65535,\"size\":2}]}\n" +
		"pool.copy {\"from\":{\"name\":\"r\"},\"to\":{\"name\":\"r\"},\"to_off\":100,\"size\":100}\npool.stat {\"region\":1}\npool.list {}\npool.destroy {\"name\":\"r\"}",
	"pool.create {\"leased\":true,\"size\":1}\npool.create {\"size\":18446744073709551615}\npool.discard {\"name\":\"r\",\"ranges\":[{\"off\":1,\"size\":18446744073709551615}]}",
	"pool.create {\"name\":\"r\",\"size\":9}\npool.gather \x01\x00\x00\x00\x08\x00\x00\x00\npool.copy {\"from\":{\"name\":\"r\"},\"from_off\":18446744073709551615,\"to\":{\"name\":\"r\"},\"size\":2}",
	"info []\ndata.stat {\ndata.list null\nload.begin \"\"",
}

// FuzzRequests has a client send whatever it likes. The node answers, serves on,
// and gives back all memory of what was not finished.
func FuzzRequests(f *testing.F) {
	for _, s := range fuzzRequests {
		f.Add(s)
	}
	dir := f.TempDir()
	for name, text := range map[string]string{"p.csv": "name,age\nAda,36\n", "p.edges": "a b\nb c\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			f.Fatal(err)
		}
	}
	ts := tokens(f, cluster.CapMember|cluster.CapWrite|cluster.CapRead, "node")
	const memory = 4 << 20
	n := aged(f, Config{Name: "n1", Listen: []string{"tcp://127.0.0.1:0"}, Tokens: ts, Memory: memory, PoolMemory: memory, DataRoots: []string{dir}}, time.Hour)
	el, p := guest(f, ts, "node")
	ep, err := el.Dial(context.Background(), n.Addrs()[0])
	if err != nil {
		f.Fatal(err)
	}
	round := 0
	f.Fuzz(func(t *testing.T, input string) {
		round++
		id := fmt.Sprintf("%032x", round)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		for i, line := range strings.Split(input, "\n") {
			call, body, _ := strings.Cut(line, " ")
			if i == fuzzCalls || len(call) > 20 {
				break
			}
			p.Call(ctx, ep, "wherry."+call, []byte(strings.ReplaceAll(body, fuzzLoad, id))) // most are refused
		}
		if _, err := p.Call(ctx, ep, control.CallInfo, []byte(`{"version":1}`)); err != nil {
			t.Fatalf("it serves no more: %v", err)
		}
		if used := n.lent(); used.Bytes < 0 || used.Bytes > memory || used.Files < 0 {
			t.Fatalf("%+v bytes of %d are lent", used, memory)
		}
		n.data.mu.Lock()
		var left []*load
		for _, l := range n.data.loads {
			left = append(left, l)
		}
		n.data.mu.Unlock()
		for _, l := range left {
			n.data.abort(l)
		}
		for name := range n.data.shards { // nothing else runs now
			if _, err := p.Call(ctx, ep, control.CallRemove, fmt.Appendf(nil, `{"name":%q}`, name)); err != nil {
				t.Fatalf("remove %q: %v", name, err)
			}
		}
		n.pool.Abandoned(n.el.EndpointsTo(el.Incarnation())[0])
		for _, r := range n.pool.List(cluster.Principal{Name: "node", Caps: cluster.CapsAll}).Regions {
			if err := n.pool.Destroy(cluster.Principal{Name: "node", Caps: cluster.CapsAll}, pool.NameRequest{Region: r.Region}); err != nil {
				t.Fatal(err)
			}
		}
		if used := n.lent(); used != (component.Lent{}) {
			t.Fatalf("%+v is left", used)
		}
	})
}
