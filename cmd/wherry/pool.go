package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/node"
	"github.com/wherry-fabric/wherry/pool"
)

func (a *app) poolCommand() *cobra.Command {
	parent := noun(&cobra.Command{
		Use:   "pool",
		Short: "Make, list and destroy regions of remote memory",
		Long: `A region is memory of a node that programs read and write from elsewhere. It has a
name, is zeros at first, and stays until it is destroyed or its node ends. Nodes lend
regions if they were started with --pool-memory. docs/pool.md describes them.`,
		Example: "  wherry pool create work 256MiB --on a\n  wherry pool ls",
	})
	a.client.add(parent)
	var on string
	parent.PersistentFlags().Var((*onceValue)(&on), "on", "node that has the region (default: the only one that has it; to create: the only one there is)")
	a.completeFlag(parent, "on", completeNodes)
	parent.AddCommand(a.poolCreateCommand(&on), a.poolListCommand(&on), a.poolStatCommand(&on), a.poolResizeCommand(&on), a.poolGrantCommand(&on), a.poolRemoveCommand(&on),
		a.poolCopyCommand(&on), a.poolBackupCommand(&on), a.poolRestoreCommand(&on), a.poolItemCommand(&on))
	return parent
}

// regionNode is the node that a command about a region is for.
func regionNode(ctx context.Context, c *client.Client, on, name string) (string, error) {
	if on != "" {
		return on, nil
	}
	return c.FindRegion(ctx, name)
}

func (a *app) poolCreateCommand(on *string) *cobra.Command {
	return &cobra.Command{
		Use:   "create NAME SIZE",
		Short: "Make a region, all zeros",
		Long: `Make a region. It takes the capability write, and belongs to your token's or
certificate's name. SIZE is rounded up to whole 64 KiB.`,
		Example: "  wherry pool create work 256MiB\n  wherry pool create work 4GiB --on a",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			size, err := node.ParseBytes(args[1])
			if err != nil {
				return usageError{err}
			}
			return a.withPool(cmd, *on, func(ctx context.Context, c *client.Client) error {
				at := *on
				if nodes := c.Nodes(); at == "" && !c.Managed(ctx) {
					if len(nodes) != 1 {
						return usagef("there are several nodes, and none of them knows a manager that chooses: say with --on at which the region shall be")
					}
					at = nodes[0].Member.Name
				}
				r, err := c.Pool().CreateRegion(ctx, at, pool.Spec{Name: args[0], Size: uint64(size)})
				if err != nil {
					return err
				}
				info := r.Info()
				return a.print(info, func(w io.Writer) {
					fmt.Fprintf(w, "region %s: %v at %s\n", info.Name, node.Bytes(info.Size), whereText(&info))
				})
			})
		},
	}
}

func (a *app) poolListCommand(on *string) *cobra.Command {
	return &cobra.Command{Use: "ls", Short: "List the regions you may see", Example: "  wherry pool ls\n  wherry pool ls --on a --json", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return a.withPool(cmd, *on, func(ctx context.Context, c *client.Client) (err error) {
			var list []pool.Info
			if *on != "" {
				list, err = c.Pool().ListRegions(ctx, *on)
			} else {
				list, err = c.Regions(ctx)
			}
			if err != nil {
				return err
			}
			return a.print(append([]pool.Info{}, list...), func(w io.Writer) { // none are [], not null
				for _, r := range list {
					fmt.Fprintf(w, "%-20s %10v  %-12s %s  %s%s\n", regionName(&r), node.Bytes(r.Size), cmp.Or(r.Component, "(managed)"), r.Rights, r.Owner, leasedText(&r))
				}
			})
		})
	}}
}

// regionName is a region's name, or its number in parentheses if it has none.
func regionName(r *pool.Info) string {
	if r.Name == "" {
		return fmt.Sprintf("(%d)", r.Region)
	}
	return r.Name
}

// whereText says where a region is.
func whereText(r *pool.Info) string {
	if r.Component == pool.Manager {
		lost := strings.Join(r.Lost, ", ")
		switch {
		case lost == "":
			return "nodes " + strings.Join(r.Placed, ", ")
		case len(r.Placed) == 0:
			return "no node any more (lost with what they held: " + lost + ")"
		}
		return "nodes " + strings.Join(r.Placed, ", ") + " (lost with what they held: " + lost + ")"
	}
	return "node " + r.Component
}

func leasedText(r *pool.Info) string {
	if r.Leased {
		return ", leased to a connection"
	}
	return ""
}

func (a *app) poolStatCommand(on *string) *cobra.Command {
	return &cobra.Command{Use: "stat NAME", Short: "Describe a region: size, owner, grants", Example: "  wherry pool stat work --on a", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completing(completeRegions, 1), RunE: func(cmd *cobra.Command, args []string) error {
			return a.withPool(cmd, *on, func(ctx context.Context, c *client.Client) error {
				at, err := regionNode(ctx, c, *on, args[0])
				if err != nil {
					return err
				}
				r, err := c.Pool().StatRegion(ctx, at, args[0])
				if err != nil {
					return err
				}
				return a.print(r, func(w io.Writer) {
					fmt.Fprintf(w, "%s: region %d at %s, %v in %d %s, owned by %s%s; you have %s\n", regionName(&r), r.Region, whereText(&r), node.Bytes(r.Size),
						r.Extents, plural(r.Extents, "extent"), r.Owner, leasedText(&r), r.Rights)
					for _, who := range slices.Sorted(maps.Keys(r.Grants)) {
						fmt.Fprintf(w, "  granted %s to %s\n", r.Grants[who], who)
					}
				})
			})
		}}
}

func (a *app) poolGrantCommand(on *string) *cobra.Command {
	return &cobra.Command{
		Use:     "grant NAME TOKEN RIGHTS",
		Short:   "Let another token read or write a region",
		Long:    "Set what TOKEN may do with a region. " + grantHelp,
		Example: "  wherry pool grant work reader r",
		Args:    cobra.ExactArgs(3),

		ValidArgsFunction: a.completing(completeRegions, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := cluster.ParseRights(args[2]); err != nil {
				return usageError{err}
			}
			return a.withPool(cmd, *on, func(ctx context.Context, c *client.Client) error {
				at, err := regionNode(ctx, c, *on, args[0])
				if err == nil {
					err = c.Pool().Grant(ctx, at, args[0], args[1], args[2])
				}
				if err != nil {
					return err
				}
				return a.print(map[string]string{"region": args[0], "component": at, "to": args[1], "rights": args[2]}, func(io.Writer) {})
			})
		},
	}
}

func (a *app) poolRemoveCommand(on *string) *cobra.Command {
	return &cobra.Command{Use: "rm NAME…", Short: "Destroy regions", Example: "  wherry pool rm work scratch", Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completing(completeRegions, 0), RunE: func(cmd *cobra.Command, args []string) error {
		return a.withPool(cmd, *on, func(ctx context.Context, c *client.Client) error {
			removed := []string{}
			var errs []error
			for _, name := range args { // one that cannot be destroyed does not keep the others
				at, err := regionNode(ctx, c, *on, name)
				if err == nil {
					err = c.Pool().DestroyRegion(ctx, at, name)
				}
				if err != nil {
					errs = append(errs, err)
					continue
				}
				removed = append(removed, name)
			}
			if len(errs) > 0 && len(removed) > 0 && !a.json {
				errs = append(errs, fmt.Errorf("destroyed: %s", strings.Join(removed, ", "))) // the others are not
			}
			errs = append(errs, a.print(map[string]any{"removed": removed}, func(io.Writer) {}))
			return errors.Join(errs...)
		})
	}}
}

// completeRegions are the regions that the user may see.
func completeRegions(a *app, cmd *cobra.Command, _ string) []string {
	return a.asked(cmd, func(ctx context.Context, c *client.Client) (words []string) {
		list, err := c.Regions(ctx)
		if err != nil {
			return nil
		}
		for _, r := range list {
			if r.Name != "" {
				words = append(words, r.Name)
			}
		}
		return words
	})
}
