package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/invoke"
)

// Exit codes; docs/cli.md lists them, and they only ever grow.
const (
	exitFailed      = 1
	exitUsage       = 2   // the command line or a file it names is wrong
	exitForbidden   = 3   // refused: token, capability, grant or key
	exitNotFound    = 4   // no such dataset, node or function
	exitLost        = 5   // an element was lost, or is stopping; what was asked may have happened
	exitDeadline    = 6   // no time was left
	exitFull        = 7   // a queue or a limit
	exitInterrupted = 130 // Ctrl-C or SIGTERM
)

// app is what the commands share.
type app struct {
	in       io.Reader
	out, err io.Writer
	json     bool
	quiet    bool
	timeout  time.Duration
	client   clientFlags
}

// usageError is a mistake on the command line.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "wherry",
		Short: "Send functions to where the data is",
		Long: `wherry moves compute and data between the elements of a data centre: send a
function to where the data is, let it hop on by itself, get the answer back.

  wherry demo                      see it at work, on this machine
  wherry node --help               lend memory and run functions
  wherry node status --help        see what goes on at running nodes
  wherry mem load --help           put data on nodes
  wherry fn run --help             run a function on it

The answer is on standard output, everything else on standard error.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version(),
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef("%w\nSee '%s --help'", err, c.CommandPath())
	})
	f := root.PersistentFlags()
	f.BoolVar(&a.json, "json", false, "write the answer as JSON")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "no progress on standard error")
	f.DurationVar(&a.timeout, "timeout", 5*time.Minute, "give up after this long")
	root.AddCommand(a.demoCommand(), a.nodeCommand(), a.memCommand(), a.fnCommand(), a.tokenCommand(), a.benchCommand(), a.doctorCommand(), a.versionCommand())
	root.CompletionOptions.HiddenDefaultCmd = true
	return root
}

// fail says what went wrong and returns the exit code.
func (a *app) fail(err error) int {
	code := exitCode(err)
	if a.json {
		json.NewEncoder(a.err).Encode(map[string]any{"error": err.Error(), "exit": code})
	} else {
		fmt.Fprintf(a.err, "wherry: %v\n", err)
	}
	return code
}

func exitCode(err error) int {
	var u usageError
	var exit exitError
	switch {
	case errors.As(err, &exit):
		return int(exit)
	case errors.As(err, &u), errors.Is(err, invoke.ErrRequest), strings.HasPrefix(err.Error(), "unknown command"), strings.Contains(err.Error(), "arg(s)"):
		return exitUsage
	case errors.Is(err, travel.ErrStopping), errors.Is(err, control.ErrStopping):
		return exitLost
	case errors.Is(err, cluster.ErrForbidden), errors.Is(err, fabric.ErrRefused), errors.Is(err, fabric.ErrRights), errors.Is(err, travel.ErrRefused):
		return exitForbidden
	case errors.Is(err, cluster.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return exitNotFound
	case errors.Is(err, travel.ErrDeadline), errors.Is(err, context.DeadlineExceeded):
		return exitDeadline
	case errors.Is(err, travel.ErrPeerLost), errors.Is(err, fabric.ErrPeerLost), errors.Is(err, travel.ErrOutcomeUnknown):
		return exitLost
	case errors.Is(err, travel.ErrBackpressure), errors.Is(err, fabric.ErrBackpressure), errors.Is(err, travel.ErrLimit), errors.Is(err, cluster.ErrFull):
		return exitFull
	}
	return exitFailed
}

// exitError ends the program with a code and nothing more to say.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// context bounds a command by --timeout.
func (a *app) context(c *cobra.Command) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Context(), a.timeout)
}

// print writes a value as JSON, or as text by the function given.
func (a *app) print(v any, text func(w io.Writer)) error {
	if !a.json {
		text(a.out)
		return nil
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

// bar shows progress on standard error if a person is looking and it takes
// longer than a second.
type bar struct {
	bar     *progressbar.ProgressBar
	started time.Time
	shown   bool
}

const barAfter = time.Second

func (a *app) bar(unit bool) *bar {
	b := &bar{started: time.Now()}
	if a.quiet || a.json || !isTerminal(a.err) {
		return b
	}
	b.bar = progressbar.NewOptions64(1, progressbar.OptionSetWriter(a.err), progressbar.OptionSetWidth(30),
		progressbar.OptionClearOnFinish(), progressbar.OptionShowBytes(unit), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionUseANSICodes(true))
	return b
}

// at moves the bar to done of total.
func (b *bar) at(text string, done, total int64) {
	if b.bar == nil || !b.shown && time.Since(b.started) < barAfter {
		return
	}
	b.shown = true
	b.bar.Describe(text)
	b.bar.ChangeMax64(max(total, 1))
	b.bar.Set64(done)
}

func (b *bar) end() {
	if b.bar != nil && b.shown {
		b.bar.Finish()
	}
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
	return &cobra.Command{Use: "version", Short: "Say which wherry this is", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		v := map[string]string{"version": version()}
		return a.print(v, func(w io.Writer) { fmt.Fprintln(w, "wherry", v["version"]) })
	}}
}
