package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/schemes"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// app is what the commands share.
type app struct {
	in       io.Reader
	out, err io.Writer
	json     bool
	quiet    bool
	timeout  time.Duration
	client   clientFlags
	schemes  fabric.Schemes // the transports of this program
	until    time.Time      // when --timeout is over; zero: nothing is bounded by it
}

func (a *app) rootCommand() *cobra.Command {
	a.schemes = schemes.All()
	root := noun(&cobra.Command{
		Use:   "wherry",
		Short: "Send functions to where the data is",
		Long: `wherry moves compute and data between the machines of a data centre: send a
function to where the data is, let it move on by itself, get the answer back.

  wherry demo                      see it at work, on this machine
  wherry node --help               lend memory and run functions
  wherry node status --help        see the state of running nodes
  wherry mem load --help           put data on nodes
  wherry fn run --help             run a function on it

The answer goes to standard output, everything else to standard error.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version(),
		Example:       "  wherry demo\n  wherry fn run closure --help",
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if a.timeout <= 0 {
				return usagef("--timeout %v: the timeout must be positive, as in 30s or 5m", a.timeout)
			}
			return nil
		},
	})
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef("%w\nSee '%s --help'", flagError(c, err), c.CommandPath())
	})
	f := root.PersistentFlags()
	f.BoolVar(&a.json, "json", false, "write the answer as JSON")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "no progress on standard error")
	f.DurationVar(&a.timeout, "timeout", 5*time.Minute, "give up after this long: more than 0, as in 30s or 5m")
	root.AddCommand(a.demoCommand(), a.nodeCommand(), a.memCommand(), a.queryCommand(), a.poolCommand(), a.topCommand(), a.managerCommand(), a.devCommand(), a.fnCommand(), a.tokenCommand(), a.caCommand(), a.runCommand(), a.benchCommand(), a.doctorCommand(), a.versionCommand(), compileWasmCommand())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	completionExamples(root)
	checkedArgs(root)
	return root
}

// lastMoment is how long before the end of --timeout an error may come from it: nodes are told of a little less time than there is, so
// that their answers are in time.
const lastMoment = 10 // a part of the whole

// fail says what went wrong and returns the exit code.
func (a *app) fail(err error) int {
	code := exitCode(err)
	if _, bare := err.(exitError); bare { // all was said already
		return code
	}
	late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, travel.ErrDeadline)
	if late && !a.until.IsZero() && time.Until(a.until) < a.timeout/lastMoment {
		err = fmt.Errorf("%w (it was given %v: --timeout)", err, a.timeout)
	}
	do := advice(err)
	switch {
	case a.json:
		said := map[string]any{"error": err.Error(), "exit": code}
		if do != "" {
			said["advice"] = do
		}
		json.NewEncoder(a.err).Encode(said)
	case do != "":
		fmt.Fprintf(a.err, "wherry: %v\n%s\n", err, do)
	default:
		fmt.Fprintf(a.err, "wherry: %v\n", err)
	}
	return code
}

// context bounds a command by --timeout.
func (a *app) context(c *cobra.Command) (context.Context, context.CancelFunc) {
	a.until = time.Now().Add(a.timeout)
	return context.WithDeadline(c.Context(), a.until)
}

// abandon runs fn, and leaves it behind if ctx ends first: nothing calls back a goroutine that waits
// for a pipe or a terminal. The program is about to end then.
func abandon[T any](ctx context.Context, fn func() (T, error)) (v T, err error) {
	type outcome struct {
		v   T
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		v, err := fn()
		done <- outcome{v, err}
	}()
	select {
	case o := <-done:
		return o.v, o.err
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
}

// print writes a value as JSON, or as text by the function given.
func (a *app) print(v any, text func(w io.Writer)) error {
	if !a.json {
		w := bufio.NewWriter(a.out) // it remembers what could not be written
		text(w)
		return w.Flush()
	}
	return json.NewEncoder(a.out).Encode(v)
}

// isTerminal reports whether w is a person's screen.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// width is how many columns the terminal w has; 80 if it is none.
func width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && ws.Col > 20 {
			return int(ws.Col)
		}
	}
	return 80
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			v += " " + s.Value[:12]
		}
	}
	return v
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Example: "  wherry version --json", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		v := map[string]string{"version": version()}
		return a.print(v, func(w io.Writer) { fmt.Fprintln(w, "wherry", v["version"]) })
	}}
}
