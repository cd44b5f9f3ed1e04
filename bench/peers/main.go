// Command peers measures what others offer for the same work beside wherry: gRPC,
// Connect, net/rpc, NATS and UCX, on the same processors, in turns within one run.
//
// Standard output is the answer (a table and bars, or JSON with --json), standard error the rest.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/wherry-fabric/wherry/bench/peers/figures"
	"github.com/wherry-fabric/wherry/bench/peers/turn"
	"github.com/wherry-fabric/wherry/fabric"
)

// roleWord starts this program as one side of a turn.
const roleWord = "role"

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

// options are the command line's.
type options struct {
	rounds     int
	time       time.Duration
	policyName string // one, or several
	besideLoad bool
	ucx        string // where PyPI's UCX lies
	pin        bool
	peers      string
	works      string
	transports string
	json       bool
	svg        string

	policies []fabric.Policy // empty: what each work is about
}

// usualWorks are those of a run that asks for none: the others take as long again.
const usualWorks = `^(echo|echo64|get1m|put1m|callers[0-9]+)$`

// policiesOf are how peers wait that have a choice: as told, or polling for the works of one thing at a time, and as programs do by
// default for those of an ordinary program.
func (o options) policiesOf(w figures.Work) []fabric.Policy {
	switch {
	case len(o.policies) > 0:
		return o.policies
	case w.Ordinary():
		return []fabric.Policy{fabric.Balanced}
	}
	return []fabric.Policy{fabric.Latency}
}

// Bounds of the command line.
const (
	maxRounds = 1000
	maxTime   = time.Minute
)

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("peers", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.rounds, "rounds", 5, "how often each takes its turn; the medians are shown")
	f.DurationVar(&o.time, "time", 300*time.Millisecond, "how long a turn measures; it warms up for a quarter of that before")
	f.StringVar(&o.policyName, "policy", "", "how peers wait that have a choice: latency (poll), balanced or efficient (sleep), or several with commas, each a row; empty: balanced for callers, size and processes, latency for the others")
	f.BoolVar(&o.besideLoad, "beside-load", false, "keep both CPUs busy meanwhile, with a process each that runs an empty loop")
	f.StringVar(&o.ucx, "ucx", besideSelf("ucx-pypi/libucx"), "folder with bin and lib of a newer UCX, measured beside the one in the PATH; install-ucx.sh makes it")
	f.BoolVar(&o.pin, "pin", true, "client on the first CPU, servers on the second")
	f.StringVar(&o.peers, "peers", "", "regular expression; only peers whose name it matches")
	f.StringVar(&o.works, "works", usualWorks, "regular expression; only these of "+workNames())
	f.StringVar(&o.transports, "transports", "", "regular expression; only these of shm, posix, sysv, unix, tcp")
	f.BoolVar(&o.json, "json", false, "one flat JSON object per peer and work, a line each")
	f.StringVar(&o.svg, "svg", "", "also write a picture to this file")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var err error
	if o.policies, err = parsePolicies(o.policyName); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.rounds < 1 || o.rounds > maxRounds:
		return o, fmt.Errorf("--rounds %d: between 1 and %d", o.rounds, maxRounds)
	case o.time < time.Millisecond || o.time > maxTime:
		return o, fmt.Errorf("--time %v: between 1 ms and %v", o.time, maxTime)
	}
	return o, nil
}

// parsePolicies reads policies with commas between them; none in an empty text.
func parsePolicies(text string) (all []fabric.Policy, err error) {
	if text == "" {
		return nil, nil
	}
	for name := range strings.SplitSeq(text, ",") {
		p, err := fabric.ParsePolicy(name)
		if err != nil {
			return nil, err
		}
		if slices.Contains(all, p) {
			return nil, fmt.Errorf("--policy %s: %s is there twice", text, name)
		}
		all = append(all, p)
	}
	return all, nil
}

func workNames() string {
	var names []string
	for _, w := range figures.Works() {
		names = append(names, string(w))
	}
	return strings.Join(names, ", ")
}

// besideSelf is a path beside this program.
func besideSelf(path string) string {
	self, err := os.Executable()
	if err != nil {
		return path
	}
	return filepath.Join(filepath.Dir(self), path)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main with its surroundings passed in; it returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 1 && args[0] == roleWord {
		if err := turn.Role(ctx, stdin, stdout); err != nil {
			fmt.Fprintln(stderr, err)
			return exitFailed
		}
		return 0
	}
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(stderr, "peers:", err)
		return exitUsage
	}
	if err := contest(ctx, o, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "peers:", err)
		return exitFailed
	}
	return 0
}

// contest measures and prints.
func contest(ctx context.Context, o options, stdout, stderr io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p, err := newPlan(ctx, o, []string{self, roleWord})
	if err != nil {
		return err
	}
	table, err := p.run(ctx, stderr)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(stdout)
	if o.json {
		err = table.WriteJSON(out)
	} else if err = table.WriteTable(out); err == nil {
		err = table.WriteBars(out)
	}
	if err = errors.Join(err, out.Flush()); err != nil || o.svg == "" {
		return err
	}
	file, err := os.Create(o.svg)
	if err != nil {
		return err
	}
	return errors.Join(table.WriteSVG(file), file.Close())
}
