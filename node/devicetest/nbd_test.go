package devicetest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nbd"
	"github.com/wherry-fabric/wherry/device/nvme/host"
)

// tool runs a program of other people's, which scripts/test-tools.sh installs, and returns what it says.
func tool(t *testing.T, args ...string) []byte {
	t.Helper()
	if _, err := exec.LookPath(args[0]); err != nil {
		if os.Getenv("CI") != "true" {
			t.Skipf("%v: scripts/test-tools.sh installs it", err)
		}
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", args, err, out, stderr.Bytes())
	}
	return out
}

// front serves a borrowed drive by NBD.
func (r *rig) front(cfg host.Config) (url string, d *host.Drive, ended chan error) {
	r.t.Helper()
	d = r.borrow(r.client("borrower"), cfg)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	s, err := nbd.New(d, driveName, slog.New(slog.NewTextHandler(r.t.Output(), nil)))
	if err != nil {
		r.t.Fatal(err)
	}
	ended = make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	r.t.Cleanup(s.Close)
	return fmt.Sprintf("nbd://%v/%s", l.Addr(), driveName), d, ended
}

// TestTools: other people's programs read and write a borrowed drive, over each transport, and its bytes are theirs.
func TestTools(t *testing.T) {
	for _, scheme := range schemes {
		t.Run(scheme, func(t *testing.T) {
			r := newRig(t, scheme)
			r.node("")
			url, _, _ := r.front(host.Config{Mode: device.Exclusive})
			var info struct {
				Exports []struct {
					Name string `json:"export-name"`
					Size uint64 `json:"export-size"`
					FUA  bool   `json:"can_fua"`
				} `json:"exports"`
			}
			if err := json.Unmarshal(tool(t, "nbdinfo", "--json", url), &info); err != nil || len(info.Exports) != 1 {
				t.Fatalf("%+v, %v", info, err)
			}
			if e := info.Exports[0]; e.Size != driveBytes || !e.FUA {
				t.Errorf("nbdinfo says %+v", e)
			}
			want := random(3, driveBytes)
			in, out := filepath.Join(r.dir, "in"), filepath.Join(r.dir, "out")
			if err := os.WriteFile(in, want, 0o600); err != nil {
				t.Fatal(err)
			}
			tool(t, "nbdcopy", "--flush", in, url)
			r.same("nbdcopy to the drive", r.file, want)
			tool(t, "nbdcopy", url, out)
			r.same("nbdcopy from the drive", out, want)
			tool(t, "qemu-img", "convert", "-f", "raw", "-O", "raw", url, out+".img")
			r.same("qemu-img convert from the drive", out+".img", want)
			want = append(random(4, driveBytes/2), make([]byte, driveBytes/2)...)
			if err := os.WriteFile(in, want, 0o600); err != nil {
				t.Fatal(err)
			}
			tool(t, "qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", in, url)
			r.same("qemu-img convert to the drive", r.file, want)
			tool(t, "qemu-img", "compare", "-f", "raw", "-F", "raw", in, url)
		})
	}
}

func (r *rig) same(what, path string, want []byte) {
	r.t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || sha256.Sum256(got) != sha256.Sum256(want) {
		r.t.Errorf("%s: others than these bytes: %d of %d, %v", what, len(got), len(want), err)
	}
}

// kills is how many borrowers are killed beside a front.
var kills = flag.Int("kills", 12, "borrowers that are killed while others use the drive")

// killer has a part of the drive borrowed, and its borrower killed while it writes, again and again until stop; enough is closed after *kills of them, or where it fails.
func (r *rig) killer(offset, size uint64) (enough <-chan struct{}, stop func()) {
	done, over := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(over)
		reached := sync.OnceFunc(func() { close(done) })
		defer reached()
		for n := 1; ctx.Err() == nil; n++ {
			said, err := killed(ctx, time.Duration(n%7)*time.Millisecond, "run-borrower", r.addr, r.tokens, fmt.Sprint(offset), fmt.Sprint(size))
			if ctx.Err() == nil && err != nil {
				r.t.Errorf("borrower %d ends before it is killed: %v: %s", n, err, said)
				return
			}
			if n >= *kills {
				reached()
			}
		}
	}()
	stop = func() {
		cancel()
		<-over
	}
	r.t.Cleanup(stop)
	return done, stop
}

// killed starts this binary in a role, and kills it some time after it is ready; else it returns what it said.
func killed(ctx context.Context, after time.Duration, args ...string) (said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	time.Sleep(after)
	cmd.Process.Kill()
	cmd.Wait()
	return stderr.String(), err
}

// TestFio: fio writes through NBD with checksums and verifies them, while another borrower of the drive is killed again and again.
func TestFio(t *testing.T) {
	r := newRig(t, "shm")
	r.node("")
	url, _, _ := r.front(host.Config{Mode: device.Exclusive, Size: driveBytes / 2})
	enough, _ := r.killer(driveBytes/2, driveBytes/2)
	for turn, more := 0, true; more && !t.Failed(); turn++ {
		tool(t, "fio", "--name=verify", "--ioengine=nbd", "--uri="+url, "--rw=randwrite", "--bsrange=512-64k", "--bs_unaligned=0", "--blockalign=512", fmt.Sprint("--size=", driveBytes/2),
			"--iodepth=16", "--verify=crc32c", "--verify_fatal=1", "--verify_backlog=64", fmt.Sprint("--randseed=", 7+turn), "--verify_state_save=0")
		select {
		case <-enough:
			more = false
		default:
		}
	}
}

// TestFrontLosesLender: clients of a drive whose lender is killed see the end, not silence.
func TestFrontLosesLender(t *testing.T) {
	r := newRig(t, "shm")
	lender := r.process("run-node", r.addr, r.tokens, r.file)
	r.grant("*", "rw")
	url, _, ended := r.front(host.Config{Mode: device.Exclusive})
	c, err := net.Dial("tcp", url[len("nbd://"):len(url)-len("/"+driveName)])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	lender.Process.Kill()
	lender.Wait()
	if err := <-ended; err == nil {
		t.Error("the server ends without a reason")
	}
	if _, err := c.Read(make([]byte, 64)); err == nil { // the greeting
		_, err = c.Read(make([]byte, 64))
		if err == nil {
			t.Error("the client sees no end")
		}
	}
}
