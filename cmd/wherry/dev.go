package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/node"
)

func (a *app) devCommand() *cobra.Command {
	parent := noun(&cobra.Command{
		Use:   "dev",
		Short: "List, grant, borrow and return devices",
		Long: `A node lends drives that it was started with: --lend nvme=NAME:/PATH. Who has the
capability device, and a grant, borrows a drive or a range of one. docs/devices.md
describes them, and how Go programs borrow.`,
		Example: "  wherry dev ls\n  wherry dev grant disk0 ann rw",
	})
	a.client.add(parent)
	var on string
	parent.PersistentFlags().Var((*onceValue)(&on), "on", "node that lends the device (default: the only one that lends one of that name)")
	a.completeFlag(parent, "on", completeNodes)
	parent.AddCommand(a.devListCommand(&on), a.devStatCommand(&on), a.devGrantCommand(&on), a.devBorrowCommand(&on), a.devReturnCommand(&on))
	return parent
}

// deviceNode is the node that a command about a device is for.
func deviceNode(ctx context.Context, c *client.Client, on, name string) (string, error) {
	if on != "" {
		return on, nil
	}
	return c.FindDevice(ctx, name)
}

func (a *app) devListCommand(on *string) *cobra.Command {
	return &cobra.Command{Use: "ls", Short: "List the devices you may borrow", Example: "  wherry dev ls\n  wherry dev ls --on a --json", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
			list, err := c.Devices(ctx)
			if err != nil {
				return err
			}
			if *on != "" {
				list = slices.DeleteFunc(list, func(d device.Info) bool { return d.Node != *on })
			}
			return a.print(list, func(w io.Writer) {
				if len(list) == 0 {
					fmt.Fprintln(a.err, "wherry: no devices that you may borrow: a node lends them (wherry node --lend), and an admin grants them (wherry dev grant NAME TOKEN rw)")
				}
				for _, d := range list {
					fmt.Fprintf(w, "%-20s %-6s %10v  %-12s %d %s%s\n", d.Name, d.Class, node.Bytes(d.SizeBytes), d.Node, len(d.Leases), plural(len(d.Leases), "lease"), readOnlyText(&d))
				}
			})
		})
	}}
}

func readOnlyText(d *device.Info) string {
	if d.ReadOnly {
		return ", read-only"
	}
	return ""
}

func (a *app) devStatCommand(on *string) *cobra.Command {
	return &cobra.Command{Use: "stat NAME", Short: "Describe a device: size, modes, leases", Example: "  wherry dev stat disk0", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completing(completeDevices, 1), RunE: func(cmd *cobra.Command, args []string) error {
			return a.withNode(cmd, *on, func(ctx context.Context, c *client.Client) error {
				at, err := deviceNode(ctx, c, *on, args[0])
				if err != nil {
					return err
				}
				d, err := c.Device(ctx, at, args[0])
				if err != nil {
					return err
				}
				return a.print(d, func(w io.Writer) {
					fmt.Fprintf(w, "%s: %s at node %s, %v in blocks of %d bytes%s; you may borrow it as %v\n", d.Name, d.Class, d.Node, node.Bytes(d.SizeBytes), d.BlockBytes, readOnlyText(d), d.Modes)
					for _, l := range d.Leases {
						fmt.Fprintf(w, "  lease %d of %s: %s, %s, %v from %d; %d %s, %d commands, %d under way\n", l.ID, orSomebody(l.Principal), l.Mode, l.State, node.Bytes(l.Size), l.Offset,
							l.Queues, plural(l.Queues, "queue"), l.Commands, l.Inflight)
					}
					for _, who := range slices.Sorted(maps.Keys(d.Grants)) {
						fmt.Fprintf(w, "  granted %s to %s\n", d.Grants[who], who)
					}
				})
			})
		}}
}

// orSomebody names whose lease it is; others than an admin do not hear that.
func orSomebody(principal string) string {
	if principal == "" {
		return "another principal"
	}
	return principal
}

func (a *app) devGrantCommand(on *string) *cobra.Command {
	return &cobra.Command{
		Use:   "grant NAME TOKEN RIGHTS",
		Short: "Let a token borrow a device",
		Long: `Set what TOKEN may do with a device; it takes the capability admin. TOKEN is the name
of a token or of a certificate, or * for everybody with the capability device. RIGHTS
are r (borrow it in mode read), rw (in every mode) or none. Leases stay as they are:
wherry dev return ends one. A node forgets its grants when it ends, unless it was
told a file that keeps them (wherry node --lend-grants).`,
		Example:           "  wherry dev grant disk0 ann rw",
		Args:              cobra.ExactArgs(3),
		ValidArgsFunction: a.completing(completeDevices, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := cluster.ParseRights(args[2]); err != nil {
				return usageError{err}
			}
			return a.withNode(cmd, *on, func(ctx context.Context, c *client.Client) error {
				at, err := deviceNode(ctx, c, *on, args[0])
				if err == nil {
					err = c.GrantDevice(ctx, at, args[0], args[1], args[2])
				}
				if err != nil {
					return err
				}
				return a.print(map[string]string{"device": args[0], "node": at, "to": args[1], "rights": args[2]}, func(io.Writer) {})
			})
		},
	}
}

func (a *app) devReturnCommand(on *string) *cobra.Command {
	return &cobra.Command{
		Use:   "return [NAME] LEASE",
		Short: "End a lease: your own, or as an admin anybody's",
		Long: `End a lease of a device. wherry dev stat lists them. The command returns when nothing
of the lease is under way any more and its blocks can be borrowed again. Its borrower's
commands fail within a second. Without NAME the lease is sought among all devices that
you may borrow.`,
		Example:           "  wherry dev return 690854027701\n  wherry dev return disk0 690854027701",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completing(completeDevices, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			number := args[len(args)-1]
			lease, err := strconv.ParseUint(number, 10, 64)
			if err != nil {
				return usagef("%q is not the number of a lease; wherry dev stat NAME lists them", number)
			}
			return a.withNode(cmd, *on, func(ctx context.Context, c *client.Client) error {
				var at, name string
				var err error
				if len(args) == 2 {
					name = args[0]
					at, err = deviceNode(ctx, c, *on, name)
				} else {
					at, name, err = leaseDevice(ctx, c, *on, lease)
				}
				if err == nil {
					err = c.ReturnLease(ctx, at, lease)
				}
				if err != nil {
					return err
				}
				return a.print(map[string]any{"device": name, "node": at, "lease": lease}, func(io.Writer) {})
			})
		},
	}
}

// leaseDevice finds the device that a lease is of, at one node or among those of all.
func leaseDevice(ctx context.Context, c *client.Client, on string, lease uint64) (at, name string, err error) {
	list, err := c.Devices(ctx)
	if err != nil {
		return "", "", err
	}
	for _, d := range list {
		if on != "" && d.Node != on || !slices.ContainsFunc(d.Leases, func(l device.LeaseInfo) bool { return l.ID == lease }) {
			continue
		}
		if name != "" {
			return "", "", usagef("nodes %s and %s have a lease %d each: say which (--on)", at, d.Node, lease)
		}
		at, name = d.Node, d.Name
	}
	if name == "" {
		return "", "", fmt.Errorf("%w: %d, among the devices that you may borrow (wherry dev ls); wherry dev stat NAME lists the leases of one", device.ErrNoLease, lease)
	}
	return at, name, nil
}

// completeDevices are the devices that the user may borrow.
func completeDevices(a *app, cmd *cobra.Command, _ string) []string {
	return a.asked(cmd, func(ctx context.Context, c *client.Client) (words []string) {
		list, err := c.Devices(ctx)
		if err != nil {
			return nil
		}
		for _, d := range list {
			words = append(words, d.Name)
		}
		return words
	})
}
