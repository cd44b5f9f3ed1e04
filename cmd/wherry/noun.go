package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// noun makes a command that only has others below it show its help, and refuse
// a word that is none of them.
func noun(cmd *cobra.Command) *cobra.Command {
	cmd.SuggestionsMinimumDistance = 2
	cmd.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		hint := ""
		if near := c.SuggestionsFor(args[0]); len(near) > 0 {
			hint = "; did you mean " + strings.Join(near, " or ") + "?"
		}
		return fmt.Errorf("unknown command %q for %q%s", args[0], c.CommandPath(), hint)
	}
	cmd.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	return cmd
}

// checkedArgs makes the wrong number of arguments a mistake of usage, here and below.
func checkedArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return usagef("%w\nSee '%s --help'", err, c.CommandPath())
			}
			return nil
		}
	}
	for _, c := range cmd.Commands() {
		checkedArgs(c)
	}
}
