package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wherry-fabric/wherry/schema"
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
			err := check(c, args)
			if err == nil {
				return nil
			}
			if !c.HasSubCommands() { // else a word too many is a command that is none
				err = argsError(c, args)
			}
			return usagef("%w\nSee '%s --help'", err, c.CommandPath())
		}
	}
	for _, c := range cmd.Commands() {
		checkedArgs(c)
	}
}

// argsError says which arguments a command takes: those of its usage line.
func argsError(c *cobra.Command, args []string) error {
	_, takes, _ := strings.Cut(c.Use, " ")
	if takes == "" {
		takes = "no arguments"
	}
	got := "none is given"
	if len(args) > 0 {
		got = fmt.Sprintf("given: %q", args)
	}
	return fmt.Errorf("%s takes %s; %s", strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" "), takes, got)
}

// flagError has a flag's error say what it wants, and not which function read it; of a flag that c has not, which one may have been meant.
func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var known []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				known = append(known, f.Name)
			}
		})
		if hint := schema.Suggest(unknown.GetSpecifiedName(), known); strings.HasPrefix(hint, "did you mean") {
			return fmt.Errorf("%w; %s", err, strings.Replace(hint, `"`, `"--`, 1))
		}
		return err
	}
	var num *strconv.NumError
	if !errors.As(err, &num) {
		return err
	}
	want := "it is a number"
	switch {
	case errors.Is(err, strconv.ErrRange):
		want = "it is out of range"
	case num.Func == "ParseInt":
		want = "it is a whole number"
	case num.Func == "ParseUint":
		want = "it is a whole number, 0 or more"
	case num.Func == "ParseBool":
		want = "it is true or false"
	}
	return errors.New(strings.ReplaceAll(err.Error(), num.Error(), want))
}
