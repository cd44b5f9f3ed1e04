package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/doctor"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check which features this machine has, and how to get the others",
		Long: `Look at this machine and say what of wherry works on it, what does not, and
what to do about it. Nothing is changed. The exit code is 1 if wherry cannot
work here at all.`,
		Example: "  wherry doctor\n  wherry doctor --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			checks := doctor.Run(cmd.Context(), a.schemes)
			err := a.print(checks, func(w io.Writer) {
				marks := map[doctor.State]string{doctor.Good: "ok", doctor.Limited: "!!", doctor.Missing: "--"}
				for _, c := range checks {
					fmt.Fprintf(w, "%-2s  %-14s %s\n", marks[c.State], c.Name, c.Detail)
					if c.State != doctor.Good {
						fmt.Fprintf(w, "    %-14s for %s\n    %-14s do: %s\n", "", c.For, "", c.Do)
					}
				}
			})
			if err == nil && !doctor.Works(checks) {
				err = exitError(exitFailed)
			}
			return err
		},
	}
}
