package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCodesOfCommands runs commands that cannot do what they are told, and holds
// their exit codes against docs/cli.md: 2 is what whoever typed it can put right.
func TestCodesOfCommands(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("WHERRY_PEERS", "")
	t.Setenv("WHERRY_TOKEN_FILE", filepath.Join(dir, "tokens"))
	for name, text := range map[string]string{"file": "x", "data.csv": "1\n", "f.c": "int nonsense", "trust": "[]"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := func(text string) error {
		a := &app{in: strings.NewReader(""), out: io.Discard, err: io.Discard}
		root := a.rootCommand()
		root.SetArgs(strings.Fields(strings.ReplaceAll(text, "DIR", dir)))
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return root.ExecuteContext(ctx)
	}
	if err := command("token new cluster --node"); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	name := fmt.Sprintf("wherry-codes-%d", os.Getpid())
	socket, err := net.Listen("unix", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	const node, nowhere = "node --name a --memory 1MiB ", " --peers tcp://127.0.0.1:1"
	for _, c := range []struct {
		command string
		code    int
		says    string
	}{
		{node + "--listen tcp://127.0.0.1:99999", exitUsage, "99999"},
		{node + "--listen tcp://127.0.0.1:nonesuch", exitUsage, "unknown port"},
		{node + "--listen tcp://127.0.0.1 --insecure", exitUsage, "not tcp://host:port"},
		{node + "--listen tcp://192.0.2.1:0 --insecure", exitFailed, "192.0.2.1"}, // its interface may come up yet
		{node + "--listen tcp://" + taken.Addr().String(), exitFailed, taken.Addr().String() + ": bind: address already in use: end what listens there"},
		{node + "--listen tcp://127.0.0.1:0 --http " + taken.Addr().String(), exitFailed, "or give another address (--http, "},
		{node + "--listen shm://@" + name, exitFailed, "another process listens at @" + name},
		{node + "--listen nonsense", exitUsage, "scheme://place"},
		{node + "--listen shm://DIR/file", exitUsage, "no socket"},
		{node + "--listen shm://DIR", exitUsage, "no socket"},
		{node + "--listen shm://DIR/none/socket", exitUsage, "none"},
		{node + "--listen shm://DIR/file/socket", exitUsage, "not a directory"},
		{node + "--listen shm://DIR/" + strings.Repeat("s", 100), exitUsage, "use a shorter path"},
		{node + "--listen shm://DIR/" + strings.Repeat("s", 300), exitUsage, "use a shorter path"},
		{node + "--listen tcp://127.0.0.1:0 --http 127.0.0.1:99999", exitUsage, "99999"},
		{node + "--listen tcp://127.0.0.1:0 --http nonsense", exitUsage, "host:port"},
		{node + "--listen tcp://127.0.0.1:0 --code-cache file", exitUsage, "not a directory: name a directory"},
		{node + "--listen tcp://127.0.0.1:0 --code-cache file/cache", exitUsage, "not a directory: name a directory"},
		{node + "--listen tcp://127.0.0.1:0 --data-root DIR/file", exitUsage, "data root"},
		{node + "--listen tcp://127.0.0.1:0 --data-root DIR/none", exitUsage, "data root"},
		{node + "--listen tcp://127.0.0.1:0 --token-file .", exitUsage, "regular"},
		{node + "--listen tcp://127.0.0.1:0 --tls-cert . --tls-key . --tls-ca .", exitUsage, "regular"},
		{node + "--config .", exitUsage, "directory"},
		{"fn build .", exitUsage, "directory"},
		{"fn build /dev/null", exitUsage, ".c"},
		{"fn build file", exitUsage, ".c"},
		{"fn build file/f.c", exitUsage, "not a directory"},
		{"fn build " + strings.Repeat("s", 300) + ".c", exitUsage, "too long"},
		{"fn build f.c --manifest .", exitUsage, "directory"},
		{"fn build f.c --include .", exitUsage, "directory"},
		{"fn build f.c", exitFailed, "f.c:1"}, // the compiler's word
		{"fn inspect .", exitUsage, "directory"},
		{"fn inspect /dev/null", exitUsage, "image"},
		{"fn inspect ./none", exitNotFound, "none"},
		{"fn run echo --node a --in ." + nowhere, exitUsage, "directory"},
		{"fn run echo --node a --in file/x" + nowhere, exitUsage, "not a directory"},
		{"mem load x ." + nowhere, exitUsage, "folder"},
		{"mem load x file/data.csv" + nowhere, exitUsage, "not a directory"},
		{"mem load x data.csv --schema ." + nowhere, exitUsage, "directory"},
		{"mem ls --peers pigeon://home", exitUsage, "only shm and tcp"},
		{"mem ls --peers tcp://127.0.0.1:99999", exitUsage, "99999"},
		{"mem ls --token-file ." + nowhere, exitUsage, "regular"},
		{"mem ls" + nowhere, exitLost, "not connected"},
		{"mem ls --peers shm://DIR/none", exitLost, "not connected"},
		{"fn keys ls --file none", exitUsage, "wherry fn keys add makes one"},
		{"fn keys rm ann --file trust", exitNotFound, "wherry fn keys ls lists them"},
		{"token ls --file .", exitUsage, "regular"},
		{"token ls --file file/tokens", exitUsage, "not a directory"},
		{"ca init --dir file", exitUsage, "not a directory"},
		{"ca ls --dir file", exitUsage, "not a directory"},
		{"demo --graph .", exitUsage, "directory"},
		{"demo --mixed --programs DIR", exitUsage, "make mixed"},
		{"demo --mixed --peers 127.0.0.1:1", exitUsage, "--peers"},
		{"demo --programs DIR", exitUsage, "--mixed"},
		{"bench verbs --cpuprofile file", exitUsage, "--cpuprofile"},
		{"bench verbs --cpuprofile none", exitUsage, "--cpuprofile"},
	} {
		err := command(c.command)
		if err == nil {
			t.Errorf("%s: it did something", c.command)
			continue
		}
		if code := exitCode(err); code != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: exit code %d, want %d; %v, want %q in it", c.command, code, c.code, err, c.says)
		}
	}
}
