// Command memory runs the same programs with a quarter of their memory local, in turns: all local, over wherry run, and over swap of
// several kinds, each swap with as much local memory as wherry took together with its daemon.
//
// Standard output is the answer (a table, or JSON with --json), standard error the rest.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

// options are the command line's.
type options struct {
	rounds    int
	sides     string
	workloads string
	wherry    string
	dir       string
	json      bool
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == remoteRole {
		if err := serveRemote(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench-memory:", err)
			os.Exit(exitFailed)
		}
		return
	}
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "rounds that count; in each, every side has one turn")
	flag.StringVar(&o.sides, "sides", strings.Join(append([]string{"shm", "tcp"}, swapNames()...), ","), "who takes turns, besides local; what this machine cannot have is left out, with the reason")
	flag.StringVar(&o.workloads, "workloads", strings.Join(workloadNames(), ","), "what is run; what this machine cannot run is left out, with the reason")
	flag.StringVar(&o.wherry, "wherry", "bin/wherry", "the program that is measured")
	flag.StringVar(&o.dir, "dir", "", "where swap files are made, on a disk (not tmpfs); empty: the folder for temporary files")
	flag.BoolVar(&o.json, "json", false, "write JSON")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	p, err := o.plan(flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-memory:", err)
		os.Exit(exitUsage)
	}
	if err := p.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench-memory:", err)
		os.Exit(exitFailed)
	}
}

// plan checks what was asked for.
func (o options) plan(rest []string) (*plan, error) {
	if len(rest) > 0 {
		return nil, fmt.Errorf("an argument too many: %q", rest[0])
	}
	if o.rounds < 1 {
		return nil, errors.New("--rounds is at least 1")
	}
	p := &plan{options: o, without: map[string]string{}}
	for _, name := range strings.Split(o.workloads, ",") {
		i := slices.IndexFunc(workloads[:], func(w workload) bool { return w.name == name })
		if i < 0 {
			return nil, fmt.Errorf("--workloads: no %q; there are %s", name, strings.Join(workloadNames(), ", "))
		}
		p.workloads = append(p.workloads, workloads[i])
	}
	all := append([]string{"local", "shm", "tcp"}, swapNames()...)
	for _, name := range strings.Split(o.sides, ",") {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("--sides: no %q; there are %s", name, strings.Join(all, ", "))
		}
		if name != "local" && !slices.Contains(p.sides, name) {
			p.sides = append(p.sides, name)
		}
	}
	return p, nil
}
