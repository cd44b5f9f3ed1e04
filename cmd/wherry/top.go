package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/node"
	"github.com/wherry-fabric/wherry/pool/manager"
)

func (a *app) topCommand() *cobra.Command {
	var once bool
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch the nodes that lend memory to regions: what they lend, what is free, how busy they are",
		Long: `Show the nodes that managers know, each with the memory that it lends to regions,
how much of it managers have placed and what is free, and how busy the process is;
and the regions that you may see. It goes on until Ctrl-C, unless you say --once.
A node that is not heard of for three seconds is not in the list any more, and
regions name it as lost. Where there are no managers (docs/cluster.md) each node is
asked, those that do not answer are named, and what they had is not listed.`,
		Example: "  wherry top\n  wherry top --once --json | jq '.components[] | {name, free}'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < shortestWatch {
				return usagef("--every %v: at least %v", every, shortestWatch)
			}
			return a.top(cmd, once, every)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "ask once, and end")
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, fmt.Sprintf("how often managers are asked, at least %v", shortestWatch))
	a.client.add(cmd)
	return cmd
}

func (a *app) top(cmd *cobra.Command, once bool, every time.Duration) error {
	ctx, cancel := a.context(cmd)
	defer cancel()
	a.client.managed = true
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	for shown := false; ; {
		round, end := context.WithTimeout(cmd.Context(), a.timeout)
		t, err := c.Top(round)
		end()
		if !once && cmd.Context().Err() != nil {
			return nil // Ctrl-C is how it ends
		}
		switch {
		case err != nil && !shown:
			return err
		case err != nil: // managers come back
			fmt.Fprintf(a.err, "%s no answer: %v\n", time.Now().Format("15:04:05"), err)
		default:
			shown = true
			if !once && !a.json {
				fmt.Fprint(a.out, watchHead(isTerminal(a.out), time.Now()))
			}
			if err := a.print(t, func(w io.Writer) { writeTop(w, t) }); err != nil || once {
				return err
			}
		}
		select {
		case <-cmd.Context().Done():
			return nil
		case <-time.After(every):
		}
	}
}

func writeTop(w io.Writer, t *manager.Top) {
	if t.Manager != "" {
		fmt.Fprintf(w, "managers %s; %s answers, from %s\n\n", strings.Join(t.Managers, ", "), t.Manager, t.Store)
	} else {
		fmt.Fprint(w, "no managers; each node says what it lends\n\n")
	}
	for _, name := range t.Away {
		fmt.Fprintf(w, "node %s does not answer: its regions are not listed, and lost if it has ended\n", name)
	}
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "NODE\tLENDS\tPLACED\tOTHER\tFREE\tEXTENTS\tBUSY\t")
	for _, c := range t.Components {
		fmt.Fprintf(tab, "%s\t%v\t%v\t%v\t%v\t%d\t%d %%\t\n", c.Name, node.Bytes(c.Capacity), node.Bytes(c.Placed), node.Bytes(c.Local), node.Bytes(c.Free), c.Extents, c.Load)
	}
	tab.Flush()
	if len(t.Regions) == 0 {
		return
	}
	fmt.Fprintln(w)
	tab = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "REGION\tSIZE\tOWNER\tSTATE\tNODES")
	for _, r := range t.Regions {
		name := r.Name
		if name == "" {
			name = fmt.Sprintf("(%d)", r.Region)
		}
		var where []string
		if len(r.Components) > 0 {
			where = append(where, strings.Join(r.Components, ", "))
		}
		if len(r.Lost) > 0 {
			where = append(where, "lost: "+strings.Join(r.Lost, ", "))
		}
		fmt.Fprintf(tab, "%s\t%v\t%s\t%s\t%s\n", name, node.Bytes(r.Size), r.Owner, r.State, strings.Join(where, "; "))
	}
	tab.Flush()
}
