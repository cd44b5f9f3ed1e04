package schemes

import (
	"slices"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/fabric"
)

func TestCheck(t *testing.T) {
	for addr, want := range map[string]string{
		"tcp://h:1": "", "tcp://[::1]:65535": "", "shm:///run/a.sock": "", "ucx://x": "", "nonsense": "",
		"tcp://h": "is not tcp://host:port", "tcp://:1": "is not tcp://host:port", "tcp://h:0": `the port "0"`, "tcp://h:65536": `the port "65536"`,
		"shm://rel": "absolute path", "shm://@a": "absolute path",
	} {
		if err := All().Check(addr); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", addr, err, want)
		}
	}
}

func TestLoopback(t *testing.T) {
	for addr, want := range map[string]bool{"tcp://127.0.0.1:1": true, "tcp://127.9.9.9:1": true, "tcp://[::1]:1": true, "tcp://localhost:1": true,
		"shm:///run/a": true, "shm://@a": true, "tcp://0.0.0.0:1": false, "tcp://:1": false, "tcp://192.0.2.1:1": false, "tcp://localhost.example.org:1": false,
		"udp://127.0.0.1:1": false, "nonsense": false, "tcp://127.0.0.1": false} {
		if got := All().Loopback(addr); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
}

func TestPick(t *testing.T) {
	got, err := All().Pick("tcp", "shm", "tcp")
	if err != nil || !slices.Equal(got.Names(), All().Names()) {
		t.Errorf("%v, %v", got.Names(), err)
	}
	if _, err := All().Pick("shm", "udp"); err == nil || err.Error() != `there is no transport "udp", only shm and tcp` {
		t.Error(err)
	}
}

// TestEntries: each entry is whole, and an element can be dialled where it says that one can listen.
func TestEntries(t *testing.T) {
	dir := t.TempDir()
	if len(dir) > 80 { // a socket's path has 107 bytes
		t.Chdir(dir)
		dir = "."
	}
	for _, s := range All() {
		list, err := fabric.Schemes{s}.Open(nil)
		if err != nil {
			t.Fatal(err)
		}
		el, err := fabric.New(fabric.Config{Name: "self", Transports: list})
		if err != nil {
			t.Fatal(err)
		}
		defer el.Close()
		addr, err := el.Listen(s.Here(dir, "a"))
		if err != nil {
			t.Fatal(err)
		}
		if ep, err := el.Dial(t.Context(), addr); err != nil || ep.Flush(t.Context()) != nil {
			t.Errorf("%s: %v", addr, err)
		}
		if list[0].Scheme() != s.Name || All().Check(addr) != nil || All().Check(s.Example) != nil || s.Probe == "" || s.For == "" || s.Do == "" {
			t.Errorf("%s: its transport is %s, or one of the addresses %s and %s is wrong, or it says nothing to doctor", s.Name, list[0].Scheme(), addr, s.Example)
		}
	}
}
