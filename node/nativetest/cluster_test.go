package nativetest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/llvm"
	"github.com/wherry-fabric/wherry/inject/native"
	"github.com/wherry-fabric/wherry/inject/trust"
	"github.com/wherry-fabric/wherry/internal/libllvm"
	"github.com/wherry-fabric/wherry/internal/ports"
	"github.com/wherry-fabric/wherry/internal/sockdir"
	"github.com/wherry-fabric/wherry/invoke"
	"github.com/wherry-fabric/wherry/node"
)

// TestMain runs the tests, or is what a node of theirs runs: a worker, the compiler, or the node itself.
func TestMain(m *testing.M) {
	native.Main()
	err := error(nil)
	switch {
	case filepath.Base(os.Args[0]) == llvm.Program:
		err = libllvm.Serve("", false)
	case len(os.Args) == 3 && os.Args[1] == "node":
		err = serve(os.Args[2])
	default:
		if err = sockdir.Shorten(); err == nil {
			os.Exit(m.Run())
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve is a node of a configuration file until SIGTERM; it says "ready".
func serve(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	cfg, err := node.ReadConfig(f)
	f.Close()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	n, err := node.New(cfg)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return n.Run(ctx)
}

// patience bounds every wait that a bug could make endless.
const patience = time.Minute

// nodes are some nodes that trust one key, each a process, and a client of theirs.
type nodes struct {
	t      *testing.T
	c      *client.Client
	key    ed25519.PrivateKey // trusted
	native string
	dir    string // where they keep everything
	names  []string
	procs  map[string]*exec.Cmd
}

// triple is this machine's.
func triple() string {
	return map[string]string{"amd64": "x86_64", "arm64": "aarch64", "riscv64": "riscv64"}[runtime.GOARCH] + "-unknown-linux-gnu"
}

func signer(of byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{of}, ed25519.SeedSize))
}

// start starts nodes with these names.
func start(t *testing.T, names ...string) *nodes { return startAs(t, "worker", names...) }

// startAs has them run native code in one of the ways that there are.
func startAs(t *testing.T, native string, names ...string) *nodes {
	t.Helper()
	return startAt(t, native, func(dir string) (addrs []string) {
		for _, n := range names {
			addrs = append(addrs, "shm://"+filepath.Join(dir, n+".sock"))
		}
		return addrs
	}, names)
}

// startApart starts nodes that have none of each other's memory mapped, as on several machines.
func startApart(t *testing.T, native string, names ...string) *nodes {
	t.Helper()
	free, err := ports.Free(len(names))
	if err != nil {
		t.Fatal(err)
	}
	return startAt(t, native, func(string) (addrs []string) {
		for _, port := range free {
			addrs = append(addrs, fmt.Sprintf("tcp://127.0.0.1:%d", port))
		}
		return addrs
	}, names)
}

// startAt starts nodes at the addresses that at gives.
func startAt(t *testing.T, native string, at func(dir string) []string, names []string) *nodes {
	t.Helper()
	dir, err := os.MkdirTemp("", "wherry")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(dir, llvm.Program)) // where nodes find it, as it is on their PATH
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &nodes{t: t, key: signer(1), native: native, dir: dir, names: names, procs: map[string]*exec.Cmd{}}
	var members []cluster.Member
	for i, addr := range at(dir) {
		members = append(members, cluster.Member{Name: names[i], Addrs: []string{addr}})
	}
	tokens := filepath.Join(dir, "tokens")
	tok, err := cluster.NewToken("all", cluster.CapsAll)
	if err == nil {
		err = os.WriteFile(tokens, []byte(tok.Line()+"\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		s.configure(tokens, m, members)
		s.run(m.Name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if s.c, err = client.Connect(ctx, client.Config{Nodes: members, TokenFile: tokens}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.c.Close() })
	return s
}

// configure writes a node's configuration.
func (s *nodes) configure(tokens string, m cluster.Member, all []cluster.Member) {
	s.t.Helper()
	var cfg strings.Builder
	fmt.Fprintf(&cfg, "name: %s\nlisten: [%s]\ntoken_file: %s\nmemory: 64MiB\nnative: %s\ncode_cache: %s\n", m.Name, m.Addrs[0], tokens, s.native, s.cache(m.Name))
	fmt.Fprintf(&cfg, "trust:\n  - name: release\n    key: %s\npeers:\n", trust.Format(s.key.Public().(ed25519.PublicKey)))
	for _, p := range all {
		fmt.Fprintf(&cfg, "  - name: %s\n    addrs: [%s]\n", p.Name, p.Addrs[0])
	}
	if err := os.WriteFile(filepath.Join(s.dir, m.Name+".yaml"), []byte(cfg.String()), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// cache is where a node keeps machine code.
func (s *nodes) cache(name string) string { return filepath.Join(s.dir, name+".cache") }

// run starts a node's process and waits until it listens.
func (s *nodes) run(name string) {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command(self, "node", filepath.Join(s.dir, name+".yaml"))
	cmd.Env = append(os.Environ(), "PATH="+s.dir+":"+os.Getenv("PATH"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.procs[name] = cmd
	s.t.Cleanup(func() { s.stop(name) })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		s.t.Fatalf("node %s says %q, %v", name, line, err)
	}
}

// stop ends a node, if it runs.
func (s *nodes) stop(name string) {
	s.t.Helper()
	cmd := s.procs[name]
	if cmd == nil {
		return
	}
	delete(s.procs, name)
	cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer late.Stop()
	if err := cmd.Wait(); err != nil {
		s.t.Errorf("node %s: %v", name, err)
	}
}

// function is one in C.
type function struct {
	name, source string
	manifest     image.Manifest
	triple       string // "": this machine's
	wasm         []byte // code in that form too, if there is any
	object       bool   // as an ELF object, not as bitcode
	flags        []string
}

// calls are all host calls: what a manifest of native code lists, if nobody looked which it needs.
func calls() (names []string) {
	for _, c := range abi.CallsOf(abi.Version) {
		names = append(names, c.Name)
	}
	return names
}

// build makes an image of a function, as bitcode or an object, and as wasm where it has that.
func (s *nodes) build(f function) *image.Image {
	s.t.Helper()
	if f.triple == "" {
		f.triple = triple()
	}
	args := []string{"--target=" + f.triple, "-O2", "-ffreestanding", "-nostdlib", "-ffp-contract=off", "-fsigned-char", "-fPIC", "-fno-stack-protector",
		"-fno-asynchronous-unwind-tables", "-I", "../../sdk/c", "-I", "../../inject/xrdma/src", "-c", "-x", "c", "-", "-o", "-"}
	form := image.ELF
	if !f.object {
		form = image.LLVMBitcode
		args = append(args, "-emit-llvm")
	}
	cmd := exec.Command("clang", append(args, f.flags...)...)
	cmd.Stdin = strings.NewReader(f.source)
	var said bytes.Buffer
	cmd.Stderr = &said
	code, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") != "true" {
		s.t.Skip(err)
	}
	if err != nil {
		s.t.Fatalf("clang: %v\n%s", err, &said)
	}
	entries := []image.Entry{{Form: form, Triple: f.triple, Code: code}}
	if f.manifest.Name == "" {
		f.manifest = image.Manifest{Name: f.name, ABI: abi.Version, Imports: calls()}
	}
	if f.wasm != nil {
		entries = append(entries, image.Entry{Form: image.Wasm, Code: f.wasm})
	}
	img, err := image.Build(f.manifest, entries...)
	if err != nil {
		s.t.Fatal(err)
	}
	return img
}

func (s *nodes) sign(img *image.Image, key ed25519.PrivateKey) *image.Image {
	s.t.Helper()
	img, err := img.Sign(key)
	if err != nil {
		s.t.Fatal(err)
	}
	return img
}

// call runs a function.
func (s *nodes) call(r invoke.Request) (*invoke.Answer, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	return invoke.Run(ctx, s.c.Runtime(), r)
}

// at runs a function on the first node.
func (s *nodes) at(img *image.Image, form forms.Wish, payload string) (string, error) {
	ep, err := s.c.Reach(s.t.Context(), s.names[0])
	if err != nil {
		return "", err
	}
	a, err := s.call(invoke.Request{Image: img, To: ep, Form: form, Payload: []byte(payload)})
	if err != nil {
		return "", err
	}
	return string(a.Raw), nil
}
