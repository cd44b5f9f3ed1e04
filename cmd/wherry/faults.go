package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/bench/faults"
)

// benchFaultsCommand asks nodes questions while they break.
func (a *app) benchFaultsCommand() *cobra.Command {
	var c faults.Config
	inside := false
	cmd := &cobra.Command{
		Use:   "faults",
		Short: "Check that answers are right, or errors, while nodes are killed and cut off",
		Long: `Start four nodes, each in a network namespace of its own, and ask them for
chases, closures, counts, queries, rows and plain calls, while nodes are
killed, stopped, restarted and cut off from each other. Each answer is compared
with the truth.
The exit code is not 0 if any of these is not 0:

  wrong     answers that are not right
  late      calls that ended more than a second after their deadline
  nameless  errors that name no node
  leftover  what nodes still have at the end, when nobody asks any more

Root is needed. The machine's own network is not touched.`,
		Example: "  sudo wherry bench faults --calls 10000 --timeout 1h --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.Calls < 1 || c.Calls > faults.MaxCalls {
				return usagef("--calls %d: 1 to %d are possible", c.Calls, faults.MaxCalls)
			}
			if !cmd.Flags().Changed("seed") {
				c.Seed = uint64(time.Now().UnixNano()) & 0xFFFFFF
			}
			if inside {
				return a.faultsInside(cmd, c)
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			args := []string{"bench", "faults", "--inside", "--calls", fmt.Sprint(c.Calls), "--seed", fmt.Sprint(c.Seed), "--timeout", a.timeout.String()}
			for flag, set := range map[string]bool{"--json": a.json, "--quiet": a.quiet} {
				if set {
					args = append(args, flag)
				}
			}
			in := exec.Command(self, args...)
			in.Stdout, in.Stderr = a.out, a.err
			err = faults.Enter(cmd.Context(), in)
			if in.ProcessState != nil && in.ProcessState.Exited() { // it has said why
				return exitError(in.ProcessState.ExitCode())
			}
			return err
		},
	}
	f := cmd.Flags()
	f.IntVar(&c.Calls, "calls", 1000, fmt.Sprintf("calls, about 30 a second, 1 to %d", faults.MaxCalls))
	f.Uint64Var(&c.Seed, "seed", 0, "of faults and calls, from 0 (default: another one each time)")
	f.BoolVar(&inside, "inside", false, "this process has namespaces of its own")
	_ = f.MarkHidden("inside")
	return cmd
}

// faultsInside is the command in its own namespaces.
func (a *app) faultsInside(cmd *cobra.Command, c faults.Config) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c.Command = []string{self}
	b := a.bar(false)
	c.Progress = func(text string, done float64) { b.at(text, int64(done*100), 100) }
	ctx, cancel := a.context(cmd)
	defer cancel()
	r, err := faults.Run(ctx, c)
	b.end()
	if err != nil {
		return err
	}
	err = a.print(r, func(w io.Writer) {
		for _, line := range []struct {
			name string
			v    any
		}{{"calls", r.Calls}, {"right", r.Right}, {"failed", r.Failed}, {"wrong", r.Wrong}, {"late", r.Late}, {"nameless", r.Nameless}, {"leftover", r.Leftover}, {"seed", r.Seed}} {
			fmt.Fprintf(w, "%-28s %v\n", line.name, line.v)
		}
		for _, name := range slices.Sorted(maps.Keys(r.Faults)) {
			fmt.Fprintf(w, "fault %-22s %d\n", name, r.Faults[name])
		}
		for _, e := range r.Examples {
			fmt.Fprintln(w, e)
		}
	})
	if err == nil && r.Bad() > 0 {
		err = fmt.Errorf("of %d calls %d were answered wrongly, %d were late, %d errors named no node; %d things were left over (--seed %d)", r.Calls, r.Wrong, r.Late, r.Nameless, r.Leftover, r.Seed)
	}
	return err
}
