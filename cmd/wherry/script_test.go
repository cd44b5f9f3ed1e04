package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/wherry-fabric/wherry/inject/native"
	"github.com/wherry-fabric/wherry/internal/sockdir"
)

// TestMain makes this test's binary the program itself where it is told to be.
func TestMain(m *testing.M) {
	native.Main()
	if os.Getenv("WHERRY_TEST_RUN") != "" || len(os.Args) == 2 && os.Args[1] == compileWasm {
		os.Exit(run(os.Args[1:]))
	}
	if addr := os.Getenv(etcdEnv); addr != "" {
		fmt.Fprintln(os.Stderr, serveEtcd(addr, os.Args[1]))
		os.Exit(1)
	}
	if filepath.Base(os.Args[0]) != "wherry" { // which is what scripts run
		if err := plain(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	testscript.Main(m, map[string]func(){"wherry": func() { os.Exit(run(os.Args[1:])) }})
}

// plain leaves the tests nothing of whose environment they run in: of clusters that there are, say.
func plain() error {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "WHERRY_") {
			if err := os.Unsetenv(name); err != nil {
				return err
			}
		}
	}
	return sockdir.Shorten()
}

// TestScripts runs the command line as people do: testdata/script.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			dir, err := filepath.Abs("testdata")
			e.Setenv("TESTDATA", dir)
			return err
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"code": code, "waitfor": waitFor, "until": until, "freeport": freePort, "waitport": waitPort, "fetch": fetch,
		},
	})
}
