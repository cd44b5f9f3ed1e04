package excache

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// joinVariable has this test's binary be a Go program that joins the cache at that socket.
const joinVariable = "WHERRY_TEST_JOIN"

// joined is that program: it says that it has joined, and reads its memory once its input ends.
func joined() error {
	w, err := Join(os.Getenv(joinVariable))
	if err != nil {
		return err
	}
	mem, err := w.Take(RoomBytes)
	if err != nil {
		return err
	}
	for i := 0; i < len(mem); i += PageBytes {
		mem[i] = 1
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	for i := 0; i < len(mem); i += PageBytes {
		if mem[i] != 1 {
			return fmt.Errorf("byte %d is %d", i, mem[i])
		}
	}
	return w.Close()
}

// TestJoin: a Go program has its memory until it ends. When the daemon ends first, the kernel kills it; it used to wait for ever for a page that was not there.
func TestJoin(t *testing.T) {
	for name, gone := range map[string]bool{"ends": false, "daemon gone": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, &testStore{most: 1, mapped: true}, 2<<20)
			cmd := exec.Command(os.Args[0], "-test.run=^$")
			cmd.Env = append(os.Environ(), joinVariable+"="+r.socket)
			in, _ := cmd.StdinPipe()
			out, _ := cmd.StdoutPipe()
			cmd.Stderr = t.Output()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			late := time.AfterFunc(20*time.Second, func() { cmd.Process.Signal(syscall.SIGABRT) })
			defer late.Stop()
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
				t.Fatalf("%q, %v", line, err)
			}
			if dumped(t, strconv.Itoa(cmd.Process.Pid)) {
				t.Error("its core dump would have what is remote")
			}
			if gone {
				r.mu.Lock()
				for s := range r.sessions { // what the kernel does when a process is killed
					s.faults.Close()
					unix.Close(s.life)
					s.life = -1
				}
				r.mu.Unlock()
			}
			in.Close()
			cmd.Wait()
			want := "exit status 0"
			if gone {
				want = "signal: killed"
			}
			if got := cmd.ProcessState.String(); got != want {
				t.Errorf("the program ended with %s, want %s", got, want)
			}
		})
	}
}
