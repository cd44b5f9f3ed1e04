package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
)

const wholeConfig = `
name: n1
listen: ["tcp://127.0.0.1:7000", "shm:///run/wherry/n1.sock"]
advertise: ["tcp://127.0.0.1:7000"]
peers:
  - name: n2
    addrs: ["tcp://127.0.0.1:7001"]
memory: 2GiB
data_roots: [/srv/data]
token_file: /etc/wherry/tokens
token: node
tls: off
tls_cert: /etc/wherry/n1.crt
tls_key: /etc/wherry/n1.key
tls_ca: /etc/wherry/ca.crt
tls_crl: /etc/wherry/ca.crl
policy: latency
insecure: true
http: 127.0.0.1:9090
code_cache: /var/cache/wherry
code_cache_bytes: 512M
stop_time: 3s
load_time: 1m
`

func TestReadConfig(t *testing.T) {
	got, err := ReadConfig(strings.NewReader(wholeConfig))
	if err != nil {
		t.Fatal(err)
	}
	want := Config{Name: "n1", Listen: []string{"tcp://127.0.0.1:7000", "shm:///run/wherry/n1.sock"}, Advertise: []string{"tcp://127.0.0.1:7000"},
		Peers: []cluster.Member{{Name: "n2", Addrs: []string{"tcp://127.0.0.1:7001"}}}, Memory: 2 << 30, DataRoots: []string{"/srv/data"},
		TokenFile: "/etc/wherry/tokens", Token: "node", Policy: "latency",
		TLS:      ca.Settings{Mode: "off", Cert: "/etc/wherry/n1.crt", Key: "/etc/wherry/n1.key", CA: "/etc/wherry/ca.crt", CRL: "/etc/wherry/ca.crl"},
		Insecure: true, HTTP: "127.0.0.1:9090",
		CodeCache: "/var/cache/wherry", CodeCacheBytes: 512 << 20, StopTime: 3 * time.Second, LoadTime: time.Minute}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Config{}, "Limits", "Tokens", "Log")); diff != "" {
		t.Error(diff)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"nmae: x", "memory: much", "listen: {}", "name: [", "stop_time: soon", strings.Repeat("#", maxConfigBytes+1)} {
		if _, err := ReadConfig(strings.NewReader(bad)); err == nil {
			t.Errorf("%.20q was taken", bad)
		}
	}
	if _, err := ReadConfig(strings.NewReader("name: a\nfrob: 1\n")); err == nil || err.Error() != `node: configuration: line 2: there is no key "frob" (docs/operations.md lists them)` {
		t.Errorf("an unknown key: %v", err)
	}
	for text, want := range map[string]string{
		"name: a\nlisten: tcp://127.0.0.1:7000\n": `line 2: a list, as in ["a", "b"], is needed here, and this is text: tcp://1...`,
		"listen: {a: b}":                `line 1: a list, as in ["a", "b"], is needed here, and this is keys with values`,
		"name: [a]":                     "line 1: text is needed here, and this is a list",
		"peers: b=tcp://127.0.0.1:7001": "line 1: a list of entries with name and addrs is needed here, and this is text: b=tcp:/...",
		"peers: [b]":                    "line 1: an entry with name and addrs is needed here, and this is text: b",
		"stop_time: soon":               "line 1: a time, as in 30s, is needed here, and this is text: soon",
		"memory: [1]":                   "line 1: a size, as in 512MiB, is needed here, and this is a list",
		"insecure: 7":                   "line 1: true or false is needed here, and this is a number: 7",
		"just words":                    "line 1: a key with its value, as in name: n1, is needed here, and this is text: just words",
		"name: {}\nnmae: x\nlisten: 5":  `line 1: text is needed here, and this is keys with values; line 2: there is no key "nmae" (docs/operations.md lists them); did you mean "name"?; line 3: a list, as in ["a", "b"], is needed here, and this is a number: 5`,
	} {
		if _, err := ReadConfig(strings.NewReader(text)); err == nil || err.Error() != "node: configuration: "+want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	for text, line := range map[string]string{"name: a\n---\nmemory: 2G\n": "line 2", "---\n---\nname: a\n": "line 2", "name: a\n---\n": "line 2"} {
		if _, err := ReadConfig(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), line+": a second YAML document") {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"---\nname: a\n", "# mine\n---\nname: a\n...\n"} {
		if c, err := ReadConfig(strings.NewReader(text)); err != nil || c.Name != "a" {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
	if c, err := ReadConfig(strings.NewReader("")); err != nil || c.Name != "" {
		t.Errorf("an empty file: %+v, %v", c, err)
	}
}

func TestEveryKeyIsDocumented(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(wholeConfig, "\n") {
		if key, _, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(key, " ") && !strings.Contains(string(doc), "`"+key+"`") {
			t.Errorf("docs/operations.md does not explain %s", key)
		}
	}
	for _, d := range append(newCollector(&Node{}).descs, newCallCollector(&Node{}).descs()...) {
		_, name, _ := strings.Cut(d.String(), `"`)
		name, _, _ = strings.Cut(name, `"`)
		if !strings.Contains(string(doc), "`"+name+"`") {
			t.Errorf("docs/operations.md does not explain the metric %s", name)
		}
	}
}

// TestBadTimes: what is negative is refused, and what is too long where it has a bound.
func TestBadTimes(t *testing.T) {
	for says, set := range map[string]func(c *Config){
		"compile_time 10m0.000000001s": func(c *Config) { c.CompileTime = maxCompileTime + 1 },
		"compile_time":                 func(c *Config) { c.CompileTime = -1 },
		"stop_time":                    func(c *Config) { c.StopTime = -1 },
		"load_time":                    func(c *Config) { c.LoadTime = -1 },
		"OpTime":                       func(c *Config) { c.Limits.OpTime = -1 },
	} {
		c := Config{Name: "n", TokenFile: "tokens"}
		if set(&c); c.Validate() == nil || !strings.Contains(c.Validate().Error(), says) {
			t.Errorf("%s: %v", says, c.Validate())
		}
	}
	if err := (&Config{Name: "n", TokenFile: "tokens", Listen: []string{"tcp://127.0.0.1:7000"}, CompileTime: maxCompileTime}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]Bytes{"0": 0, "65536": 65536, "64k": 64 << 10, "64KiB": 64 << 10, "64KB": 64000, "1.5 GiB": 3 << 29, "2T": 2 << 40, " 7 b ": 7} {
		if got, err := ParseBytes(text); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "x", "-1", "1Q", "NaN", "1e99", "Inf", "GiB"} {
		if got, err := ParseBytes(bad); err == nil {
			t.Errorf("%q is %d", bad, got)
		}
	}
	if s := Bytes(3 << 29).String(); s != "1.5 GiB" {
		t.Error(s)
	}
}

func FuzzParseBytes(f *testing.F) {
	f.Add("1.5GiB")
	f.Fuzz(func(t *testing.T, text string) {
		if b, err := ParseBytes(text); err == nil && (b < 0 || b > 1<<50) {
			t.Fatalf("%q is %d", text, b)
		}
	})
}

// FuzzReadConfig: whatever stands in a configuration file, it is read or refused in words, and what is read can be checked.
func FuzzReadConfig(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ReadConfig(strings.NewReader(text))
		if err != nil {
			if says := err.Error(); !strings.HasPrefix(says, "node: configuration: ") || strings.Contains(says, "unmarshal") && !strings.Contains(text, "unmarshal") {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if err := c.Validate(); err != nil && err.Error() == "" {
			t.Fatal("refused without a word")
		}
	})
}

func FuzzRootPaths(f *testing.F) {
	dir := f.TempDir()
	inside := filepath.Join(dir, "in")
	os.Mkdir(inside, 0o700)
	os.WriteFile(filepath.Join(inside, "good.csv"), []byte("good"), 0o600)
	os.WriteFile(filepath.Join(dir, "secret.csv"), []byte("secret"), 0o600)
	os.Symlink("../secret.csv", filepath.Join(inside, "link.csv"))
	os.Symlink("..", filepath.Join(inside, "up"))
	r, err := openRoots([]string{inside})
	if err != nil {
		f.Fatal(err)
	}
	defer r.close()
	for _, p := range []string{"good.csv", "./good.csv", "../secret.csv", "link.csv", "up/secret.csv", inside + "/../secret.csv", "/etc/passwd", "a/../good.csv"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, path string) {
		in, err := r.find(path)
		if err != nil {
			return
		}
		s, err := in.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var b [16]byte
		if n, _ := s.Read(b[:]); string(b[:n]) != "good" {
			t.Fatalf("%q reads %q", path, b[:n])
		}
	})
}
