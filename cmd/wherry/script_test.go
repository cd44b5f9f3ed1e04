package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes this test's binary the program itself where it is told to be.
func TestMain(m *testing.M) {
	if os.Getenv("WHERRY_TEST_RUN") != "" {
		os.Exit(run(os.Args[1:]))
	}
	testscript.Main(m, map[string]func(){"wherry": func() { os.Exit(run(os.Args[1:])) }})
}

// TestScripts runs the command line as people do: testdata/script.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"code": code, "waitfor": waitFor, "until": until, "freeport": freePort, "waitport": waitPort,
		},
	})
}
