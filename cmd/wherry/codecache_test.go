package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCodeCacheOnBadDisk: a node whose code cache is on a disk that is full, or that never answers, starts without it and says so.
func TestCodeCacheOnBadDisk(t *testing.T) {
	for _, tt := range []struct{ name, mount, want string }{
		{"full", "mount -t tmpfs -o size=64k none cache", "no space left on device"},
		{"silent", "exec 9<>/dev/fuse; mount -i -t fuse -o fd=9,rootmode=40000,user_id=0,group_id=0 none cache", "the disk has not answered for 3s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			must(t, self(t.Context(), "", "token", "new", "cluster", "--node", "--file", filepath.Join(dir, "tokens")))
			if err := os.Mkdir(filepath.Join(dir, "cache"), 0o700); err != nil {
				t.Fatal(err)
			}
			cmd := nodeOnDisk(dir, tt.mount)
			var log bytes.Buffer
			cmd.Stderr = &log
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			up := make([]byte, 100)
			n, err := out.Read(up)
			cmd.Process.Kill()
			cmd.Wait()
			if !strings.HasPrefix(string(up[:n]), "node a ") {
				t.Fatalf("%q, %v\n%s", up[:n], err, &log)
			}
			if want := `level=ERROR msg="the code cache cannot be used: starting without it, .*` + tt.want; !regexp.MustCompile(want).Match(log.Bytes()) {
				t.Errorf("the log has no %s:\n%s", want, &log)
			}
		})
	}
}

// nodeOnDisk is a node whose code cache is a disk of its own, at the folder cache: the mount is the node's alone, and ends with it.
func nodeOnDisk(dir, mount string) *exec.Cmd {
	args := []string{"-m"}
	if os.Geteuid() != 0 {
		args = append(args, "-r")
	}
	args = append(args, "sh", "-c", "set -e; "+mount+"; export WHERRY_TEST_RUN=1; "+
		"exec "+os.Args[0]+" node --name a --listen shm://"+filepath.Join(dir, "a.sock")+" --token-file tokens --code-cache cache")
	cmd := exec.Command("unshare", args...)
	cmd.Dir = dir
	return cmd
}

// TestCodeCacheReadOnly: nor does a node start with one on a file system that is mounted read-only, which no waiting mends.
func TestCodeCacheReadOnly(t *testing.T) {
	dir := t.TempDir()
	must(t, self(t.Context(), "", "token", "new", "cluster", "--node", "--file", filepath.Join(dir, "tokens")))
	if err := os.Mkdir(filepath.Join(dir, "cache"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := nodeOnDisk(dir, "mount -t tmpfs -o ro,mode=700 none cache")
	stop := context.AfterFunc(ctx, func() { cmd.Process.Kill() })
	defer stop()
	out, err := cmd.CombinedOutput()
	if err == nil || !regexp.MustCompile(`code_cache: .*cache.*read-only file system: name a directory`).Match(out) {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestCodeCacheRefused: a node does not start with a code cache in which others could put code for it to run, nor with one that can hold no files, and says what to do.
func TestCodeCacheRefused(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	must(t, self(t.Context(), "", "token", "new", "cluster", "--node", "--file", tokens))
	open := filepath.Join(t.TempDir(), "cache")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{open: "chmod go-w " + open, "/proc/self": "name a directory that this user can write to",
		"/sys/kernel": "name a directory that this user can write to"} {
		out, err := self(t.Context(), "", "node", "--name", "a", "--listen", "shm://"+filepath.Join(t.TempDir(), "a.sock"), "--token-file", tokens, "--code-cache", dir).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "code_cache: ") || !strings.Contains(string(out), want) {
			t.Errorf("with %s: %v, want %q\n%s", dir, err, want, out)
		}
	}
}
