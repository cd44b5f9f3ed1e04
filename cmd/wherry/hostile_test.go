package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

// besieged is a node's process: eve attacks it, ann is honest, and bob may only read.
type besieged struct {
	*testing.T
	cmd      *exec.Cmd
	log      *bytes.Buffer // to be read when the process has ended
	shm, tcp string
	tokens   string
}

func besiege(t *testing.T, more ...string) *besieged {
	t.Helper()
	dir := t.TempDir()
	b := &besieged{T: t, log: &bytes.Buffer{}, shm: "shm://" + filepath.Join(dir, "a.sock"), tokens: filepath.Join(dir, "tokens")}
	must(t, self(t.Context(), "", "token", "new", "node", "--node", "--file", b.tokens))
	for who, caps := range map[string]string{"ann": "inject,read,write", "eve": "inject,read,write", "bob": "read"} {
		must(t, self(t.Context(), "", "token", "new", who, "--caps", caps, "--file", b.tokens))
	}
	b.cmd = self(context.Background(), "", append([]string{"node", "--name", "a", "--listen", b.shm, "--listen", "tcp://127.0.0.1:0", "--token-file", b.tokens, "--memory", "256MiB"}, more...)...)
	out, err := b.cmd.StdoutPipe()
	b.cmd.Stderr = b.log
	if err == nil {
		err = b.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if b.cmd.ProcessState == nil {
			b.cmd.Process.Kill()
			b.cmd.Wait()
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	_, addr, ok := strings.Cut(line, "tcp://")
	if err != nil || !ok {
		t.Fatalf("the node says %q (%v)", line, err)
	}
	b.tcp, _, _ = strings.Cut(strings.TrimRight(addr, "]\n"), " ")
	return b
}

// as connects a principal.
func (b *besieged) as(who string) *client.Client {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	c, err := client.Connect(ctx, client.Config{Name: who, Nodes: []cluster.Member{{Name: "a", Addrs: []string{b.shm}}}, Only: true, TokenFile: b.tokens, Token: who,
		Limits: fabric.Limits{LentBytes: 1 << 50}})
	if err != nil {
		b.Fatal(who, err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

// endpoint is the node, as a client has it.
func (b *besieged) endpoint(c *client.Client) *fabric.Endpoint {
	b.Helper()
	ep, err := c.Endpoint(b.Context(), "a")
	if err != nil {
		b.Fatal(err)
	}
	return ep
}

// serves says that the node does for an honest principal what it is there for: a load, a function, a call.
func (b *besieged) serves(c *client.Client, after string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	_, err := c.Load(ctx, client.LoadSpec{Name: "honest", Replace: true, Blank: &client.Blank{Rows: 8, Sizes: []uint64{64}}}, nil)
	if err == nil {
		_, err = c.Info(ctx, "a")
	}
	if err == nil {
		err = b.runs(ctx, c)
	}
	if err != nil {
		b.Fatalf("after %s: %v", after, err)
	}
}

func (b *besieged) runs(ctx context.Context, c *client.Client) error {
	f, err := c.Runtime().Prepare(xrdma.Echo(), nil)
	if err != nil {
		return err
	}
	defer f.Close()
	got, err := f.Do(ctx, inject.Root{To: b.endpoint(c), Payload: []byte("still there")}, nil)
	if err == nil && string(got) != "still there" {
		err = fmt.Errorf("it answers %q", got)
	}
	return err
}

// proc is a figure of the process's status, in KiB.
func (b *besieged) proc(name string) (kib uint64) {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.cmd.Process.Pid))
	_, rest, ok := strings.Cut(string(text), name+":")
	if err == nil && ok {
		kib, err = strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
	}
	if err != nil || !ok {
		b.Fatal(name, err)
	}
	return kib
}

// finish ends the node in order, and returns its log.
func (b *besieged) finish() string {
	b.Helper()
	b.cmd.Process.Signal(syscall.SIGTERM)
	if err := b.cmd.Wait(); err != nil {
		b.Errorf("the node ended with %v\n%s", err, b.log)
	}
	return b.log.String()
}

// TestSparseSegments: segments that are all holes take addresses, of which a process has 128 TiB. Neither loads that are begun with more of them than that and left, nor
// honest ones, one after the other, take those from the node for good.
func TestSparseSegments(t *testing.T) {
	b := besiege(t)
	ann, eve := b.as("ann"), b.as("eve")
	begin := func(c *client.Client, n int, size uint64) error {
		s, err := c.Element().NewSegment(size, fabric.Writable)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		key, err := s.Key(fabric.RightsAll)
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("%s%d", c.Element().Name(), n)
		id := control.LoadID(fmt.Sprintf("%032x", n+int(c.Element().Name()[0])<<20))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err = b.call(ctx, c, control.CallBegin, &control.BeginRequest{Load: id, Name: name, Staging: key.Append(nil)}); err != nil {
			return err
		}
		if c == eve {
			return nil // she leaves it
		}
		return b.call(ctx, c, control.CallAbort, &control.LoadRequest{Load: id})
	}
	for i := range 140 { // fewer than loads that one may begin: what the node does not map is served
		if err := begin(eve, i, 1<<40); err != nil {
			t.Fatalf("load %d of a principal that leaves it: %v", i, err)
		}
	}
	if tib := b.proc("VmSize") >> 30; tib < 8 {
		t.Errorf("the node has %d TiB of addresses: it maps none of those segments", tib)
	}
	for i := range 280 {
		if err := begin(ann, i, 1<<39); err != nil {
			t.Fatalf("honest load %d: %v", i, err)
		}
	}
	b.serves(ann, "loads from sparse segments")
	if tib := b.proc("VmSize") >> 30; tib > 64 {
		t.Errorf("the node has %d TiB of addresses", tib)
	}
	b.finish()
}

func (b *besieged) call(ctx context.Context, c *client.Client, name string, req any) error {
	body, err := json.Marshal(req)
	if err == nil {
		_, err = c.RPC().Call(ctx, b.endpoint(c), name, body)
	}
	return err
}

// TestNestedRequests: what takes a hundred times its size once it is read is not read, of who may not make the call; nor is it fetched.
func TestNestedRequests(t *testing.T) {
	b := besiege(t)
	ann := b.as("ann")
	b.serves(ann, "nothing")
	before := b.proc("VmHWM")
	body := []byte(`{"load":"` + strings.Repeat("a", 32) + `","name":"x","staging":` + strings.Repeat(`[[],`, 2<<20-64))
	for _, who := range []string{"bob", "eve"} { // who may not make the call, and who may
		c := b.as(who)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				for _, name := range []string{control.CallBegin, control.CallPrepare} {
					if _, err := c.RPC().Call(ctx, b.endpoint(c), name, body); err == nil || ctx.Err() != nil {
						t.Errorf("%s of %s: %v", name, who, err)
					}
				}
			})
		}
		all.Wait()
		b.serves(ann, "nested requests of "+who)
	}
	if grew := int64(b.proc("VmHWM")-before) >> 10; grew > 256 {
		t.Errorf("it took %d MiB", grew)
	}
	b.finish()
}

// TestBrokenConnections: thousands of connections that end in the middle of their first message leave a few lines in the log.
func TestBrokenConnections(t *testing.T) {
	const connections, crowd = 5760, 16
	b := besiege(t)
	var all sync.WaitGroup
	for i := range crowd {
		all.Go(func() {
			for range connections / crowd {
				conn, err := net.Dial("tcp", b.tcp)
				if err != nil {
					t.Error(err)
					return
				}
				conn.Write([]byte{64, 0, 0, byte(i)})
				conn.(*net.TCPConn).SetLinger(0) // a port each would be kept for a minute
				conn.Close()
			}
		})
	}
	all.Wait()
	b.serves(b.as("ann"), "broken connections")
	if log := b.finish(); len(log) > 100<<10 {
		t.Errorf("the log has %d bytes:\n%.2000s", len(log), log)
	}
}

// TestEndlessCrowd: one principal's four hundred functions that never end do not keep another's out of the one queue.
func TestEndlessCrowd(t *testing.T) {
	const crowd = 400
	b := besiege(t)
	ann, eve := b.as("ann"), b.as("eve")
	img, err := cbuild.Build(t.Context(), cbuild.Source{Name: "spin.c", Code: []byte("#include \"wherry.h\"\nWHERRY_ENTRY(payload, size) { (void)payload, (void)size; for (volatile int i = 0;; i = 1 - i) ; }\n")},
		image.Manifest{Name: "spin", Limits: abi.Limits{RunTime: 5 * time.Minute}}, cbuild.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := eve.Runtime().Prepare(img, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var futures []*inject.Future
	for range crowd {
		fut, err := f.Start(ctx, []inject.Root{{To: b.endpoint(eve)}}, inject.Options{})
		if err != nil {
			t.Fatal(err)
		}
		futures = append(futures, fut)
	}
	for running, held := 0, 0; running == 0 || running+held < crowd; { // until all of them are there
		st, err := ann.Status(ctx, "a")
		if err != nil {
			t.Fatalf("of %d functions %d run and %d are held: %v", crowd, running, held, err)
		}
		running, held = st.Queues.Running, st.Queues.Held
	}
	b.serves(ann, "four hundred endless functions")
	for _, fut := range futures {
		fut.Cancel()
		<-fut.Done()
	}
	b.finish()
}

// largeImage is a function that a node has compiled by another process; a seed makes it another one.
func largeImage(t *testing.T, seed int) *image.Image {
	t.Helper()
	const functions = 40
	source, calls := "#include \"wherry.h\"\n", ""
	for f := range functions {
		source += fmt.Sprintf("static __attribute__((noinline)) uint64_t f%d(const uint64_t *p, uint64_t v) {\n", f)
		for i := range 20 {
			source += fmt.Sprintf("if (p[v %% %d] > v) v = v * %d + p[%d]; else v ^= p[v & %d];\n", i+2, 2*i+f+seed, i, i)
		}
		source += "return v; }\n"
		calls += fmt.Sprintf("v = f%d(payload, v);", f)
	}
	source += "WHERRY_ENTRY(payload, size) { uint64_t v = size; " + calls + " return wherry_reply(&v, 8); }\n"
	img, err := cbuild.Build(t.Context(), cbuild.Source{Name: "large.c", Code: []byte(source)}, image.Manifest{Name: "large"}, cbuild.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if size := img.Size(); size < 40<<10 {
		t.Fatalf("the image has only %d bytes: it is compiled in the node", size)
	}
	return img
}

// TestStopsWhileCompiling: a node whose compiler is at something that never ends is stopped in order all the same.
func TestStopsWhileCompiling(t *testing.T) {
	const stopTime = 300 * time.Millisecond
	b := besiege(t, "--stop-time", stopTime.String())
	ann := b.as("ann")
	images := []*image.Image{largeImage(t, 0), largeImage(t, 1)} // half a minute of clang's on a busy machine: before the wait begins
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	start := func(i int) *inject.Future {
		f, err := ann.Runtime().Prepare(images[i], nil)
		if err != nil {
			t.Fatal(err)
		}
		fut, err := f.Start(ctx, []inject.Root{{To: b.endpoint(ann), Payload: make([]byte, 1024)}}, inject.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return fut
	}
	if _, err := start(0).Wait(ctx); err != nil { // there is a compiler then
		t.Fatal(err)
	}
	compiler := b.compiler()
	if err := syscall.Kill(compiler, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			syscall.Kill(compiler, syscall.SIGKILL)
		}
	})
	fut := start(1)
	for held := 0; held == 0; {
		st, err := ann.Status(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		held = st.Queues.Held
	}
	from := time.Now()
	b.finish()                   // in order: it did not have to leave anything behind
	const more = 4 * time.Second // docs/operations.md has service managers wait so much longer: a second is for functions that are told to stop, two are to close
	if took := time.Since(from); took > stopTime+more {
		t.Errorf("it ended %v after it was told to", took)
	}
	if _, err := fut.Wait(ctx); err == nil {
		t.Error("a function that was not compiled has answered")
	}
	for stat := processStat(fmt.Sprint(compiler)); len(stat) > 0 && stat[0] != "Z"; stat = processStat(fmt.Sprint(compiler)) { // nobody may wait for orphans here
		if ctx.Err() != nil {
			t.Fatalf("the compiler is there still: %q", stat)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// compiler is the node's compiler process, which it keeps ready: the one that has compiled, and not the spare, which is younger.
func (b *besieged) compiler() (pid int) {
	b.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", b.cmd.Process.Pid))
		if err != nil {
			b.Fatal(err)
		}
		var oldest uint64
		for _, task := range tasks {
			text, _ := os.ReadFile(task) // the thread may have ended
			for _, child := range strings.Fields(string(text)) {
				line, _ := os.ReadFile("/proc/" + child + "/cmdline")
				stat := processStat(child)
				if !strings.Contains(string(line), compileWasm) || len(stat) < 20 {
					continue
				}
				if started, err := strconv.ParseUint(stat[19], 10, 64); err == nil && (pid == 0 || started < oldest) {
					pid, _ = strconv.Atoi(child)
					oldest = started
				}
			}
		}
		if pid != 0 {
			return pid
		}
	}
	b.Fatal("the node has no compiler process")
	return 0
}

// processStat is what /proc says of a process, from its state on; none: there is no such process.
func processStat(pid string) []string {
	text, _ := os.ReadFile("/proc/" + pid + "/stat")
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
}
