package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"
)

// TestServiceManagerIsTold: a node that systemd starts (Type=notify-reload) says when it is up, when it has read its files again, also wrong
// ones, and that it stops.
func TestServiceManagerIsTold(t *testing.T) {
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens")
	must(t, self(t.Context(), "", "token", "new", "cluster", "--node", "--file", tokens))
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	node := exec.Command(os.Args[0], "node", "--name", "a", "--listen", "shm://"+filepath.Join(dir, "a.sock"), "--token-file", tokens)
	node.Env = append(os.Environ(), "WHERRY_TEST_RUN=1", "NOTIFY_SOCKET="+filepath.Join(dir, "notify"))
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	defer node.Wait()
	defer node.Process.Kill()
	hears := func(want string) {
		t.Helper()
		l.SetReadDeadline(time.Now().Add(time.Minute))
		b := make([]byte, 200)
		n, err := l.Read(b)
		if err != nil || !regexp.MustCompile("^(?:"+want+")$").Match(b[:n]) {
			t.Fatalf("the service manager heard %q, want %s (%v)", b[:n], want, err)
		}
	}
	hears("READY=1")
	for _, text := range []string{"", "nonsense\n"} {
		f, err := os.OpenFile(tokens, os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(text)
			f.Close()
		}
		if err == nil {
			err = node.Process.Signal(syscall.SIGHUP)
		}
		if err != nil {
			t.Fatal(err)
		}
		hears("RELOADING=1\nMONOTONIC_USEC=[0-9]+")
		hears("READY=1")
	}
	if err := node.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	hears("STOPPING=1")
}
