package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/node"
	"github.com/wherry-fabric/wherry/pool"
)

// place is a region, or an item of one, as a command line names it: REGION[:ITEM][@NODE].
type place struct{ region, item, node string }

func parsePlace(text string) (p place, err error) {
	rest, on, _ := strings.Cut(text, "@")
	p.node = on
	p.region, p.item, _ = strings.Cut(rest, ":")
	if err := cluster.ValidateName(p.region); err != nil {
		return p, usagef("%q: write REGION, REGION:ITEM or either with @NODE behind: %v", text, err)
	}
	return p, nil
}

// poolBytes is a region or an item that a command was given.
type poolBytes interface {
	pool.Bytes
	Size() int64
	Copy(ctx context.Context, off uint64, dst pool.Bytes, dstOff, n uint64, progress func(done uint64)) error
	Backup(ctx context.Context, w io.Writer, progress func(done uint64)) error
	Restore(ctx context.Context, r io.Reader, progress func(done uint64)) error
}

// open opens what a place names. on is the node where it names none. An item is opened without its region: a principal may have a right to it and none to that.
func (p place) open(ctx context.Context, c *client.Client, on string) (poolBytes, error) {
	if p.item == "" {
		return p.openRegion(ctx, c, on)
	}
	return p.openItem(ctx, c, on)
}

func (p place) openRegion(ctx context.Context, c *client.Client, on string) (*pool.Region, error) {
	at, err := regionNode(ctx, c, cmp.Or(p.node, on), p.region)
	if err != nil {
		return nil, err
	}
	return c.Pool().LookupRegion(ctx, at, p.region)
}

func (p place) openItem(ctx context.Context, c *client.Client, on string) (*pool.Item, error) {
	at := cmp.Or(p.node, on)
	if at == "" {
		var err error
		if at, err = c.FindItem(ctx, p.region, p.item); err != nil {
			return nil, err
		}
	}
	return c.Pool().LookupItem(ctx, at, p.region, p.item)
}

func (a *app) poolResizeCommand(on *string) *cobra.Command {
	return &cobra.Command{
		Use:   "resize NAME SIZE",
		Short: "Make a region larger or smaller",
		Long: `Make a region larger or smaller; it takes ownership. What is added is zeros, what is
taken away is gone: programs that have the region open get an error there. A
region of one node cannot become smaller than where its last item ends; where
managers placed it, the items that had bytes there end.`,
		Example: "  wherry pool resize work 1GiB",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: a.completing(completeRegions, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			size, err := node.ParseBytes(args[1])
			if err != nil {
				return usageError{err}
			}
			return a.withPool(cmd, *on, func(ctx context.Context, c *client.Client) error {
				r, err := place{region: args[0]}.openRegion(ctx, c, *on)
				if err == nil {
					err = r.Resize(ctx, uint64(size))
				}
				if err != nil {
					return err
				}
				info := r.Info()
				return a.print(info, func(w io.Writer) {
					fmt.Fprintf(w, "region %s: %v in %d %s at %s\n", info.Name, node.Bytes(info.Size), info.Extents, plural(info.Extents, "extent"), whereText(&info))
				})
			})
		},
	}
}

func (a *app) poolCopyCommand(on *string) *cobra.Command {
	return &cobra.Command{
		Use:   "cp FROM TO",
		Short: "Copy a region or an item over another one",
		Long: `Copy all bytes of FROM to the beginning of TO. Each is a region, or an item of one as
REGION:ITEM; with @NODE behind it, it is that node's. The nodes copy among
themselves: nothing passes through this machine.`,
		Example: "  wherry pool cp work@a work@b\n  wherry pool cp work:table spare",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: a.completing(completeRegions, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var ends [2]place
			for i := range ends {
				var err error
				if ends[i], err = parsePlace(args[i]); err != nil {
					return err
				}
			}
			return a.withPool(cmd, *on, func(ctx context.Context, c *client.Client) error {
				from, err := ends[0].open(ctx, c, *on)
				if err != nil {
					return err
				}
				to, err := ends[1].open(ctx, c, *on)
				if err != nil {
					return err
				}
				b := a.bar(true)
				defer b.end()
				n := from.Size()
				if err := from.Copy(ctx, 0, to, 0, uint64(n), func(done uint64) { b.at(args[1], int64(done), n) }); err != nil {
					return err
				}
				return a.print(map[string]any{"from": args[0], "to": args[1], "bytes": n}, func(io.Writer) {})
			})
		},
	}
}

func (a *app) poolBackupCommand(on *string) *cobra.Command {
	return &cobra.Command{
		Use: "backup NAME FILE", Short: "Write a region or an item to a file of this machine",
		Long: `Write all bytes of a region, or of an item as REGION:ITEM, to a file of this machine,
with checksums; - is standard output. wherry pool restore reads it. It takes the right
to read; of an item, a right to its region is not needed.`,
		Example: "  wherry pool backup work work.backup",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: a.completing(completeRegions, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.poolFile(cmd, *on, args[0], func(ctx context.Context, m poolBytes, progress func(uint64)) error {
				return a.writeTo(args[1], func(w io.Writer) error { return m.Backup(ctx, w, progress) })
			})
		},
	}
}

func (a *app) poolRestoreCommand(on *string) *cobra.Command {
	return &cobra.Command{
		Use: "restore NAME FILE", Short: "Put a backup's bytes into a region or an item",
		Long: `Put what wherry pool backup wrote to the beginning of a region, or of an item as
REGION:ITEM, which must be large enough; - is standard input. It takes the right to
write. wherry pool item create makes an item to restore to, which takes the right to
write to the region.`,
		Example: "  wherry pool restore work work.backup",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: a.completing(completeRegions, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			from := a.in
			if args[1] != "-" {
				f, err := os.Open(args[1])
				if err != nil {
					return err
				}
				defer f.Close()
				from = f
			}
			return a.poolFile(cmd, *on, args[0], func(ctx context.Context, m poolBytes, progress func(uint64)) error {
				return m.Restore(ctx, from, progress)
			})
		},
	}
}

// poolFile runs what moves a place's bytes to or from a file.
func (a *app) poolFile(cmd *cobra.Command, on, name string, move func(ctx context.Context, m poolBytes, progress func(done uint64)) error) error {
	p, err := parsePlace(name)
	if err != nil {
		return err
	}
	return a.withPool(cmd, on, func(ctx context.Context, c *client.Client) error {
		m, err := p.open(ctx, c, on)
		if err != nil {
			return err
		}
		b := a.bar(true)
		defer b.end()
		return move(ctx, m, func(done uint64) { b.at(name, int64(done), m.Size()) })
	})
}

func (a *app) poolItemCommand(on *string) *cobra.Command {
	parent := noun(&cobra.Command{
		Use:   "item",
		Short: "Allocate, list and destroy items of a region",
		Long: `An item is an allocation in a region, with a name, an owner and rights that can be
granted. Its node keeps the list of them. docs/pool.md describes items.`,
		Example: "  wherry pool item create work table 1MiB\n  wherry pool item ls work",
	})
	parent.AddCommand(a.itemCreateCommand(on), a.itemListCommand(on), a.itemStatCommand(on), a.itemResizeCommand(on), a.itemGrantCommand(on), a.itemRemoveCommand(on))
	return parent
}

// withItem opens an item for what f does.
func (a *app) withItem(cmd *cobra.Command, on, region, item string, f func(ctx context.Context, it *pool.Item) error) error {
	return a.withPool(cmd, on, func(ctx context.Context, c *client.Client) error {
		it, err := place{region: region, item: item}.openItem(ctx, c, on)
		if err != nil {
			return err
		}
		return f(ctx, it)
	})
}

func (a *app) itemCreateCommand(on *string) *cobra.Command {
	var s pool.ItemSpec
	var block string
	cmd := &cobra.Command{
		Use: "create REGION NAME SIZE", Short: "Allocate an item, all zeros",
		Long: `Allocate an item. It takes the right to write to the region, and belongs to your token's
or certificate's name. Its bytes are zeros, unless programs have written there by the
region's offsets: use a region by offsets or by items.`,
		Example: "  wherry pool item create work table 1MiB\n  wherry pool item create work secret 4KiB --private",
		Args:    cobra.ExactArgs(3), ValidArgsFunction: a.completing(completeRegions, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			size, err := node.ParseBytes(args[2])
			if err != nil {
				return usageError{err}
			}
			if s.Components < 1 {
				return usagef("--nodes %d: an item lies at 1 node at least", s.Components)
			}
			s.Name, s.Size = args[1], uint64(size)
			if block != "" {
				if size, err = node.ParseBytes(block); err != nil {
					return usageError{fmt.Errorf("--block: %w", err)}
				}
				s.Block = uint64(size)
			}
			return a.withPool(cmd, *on, func(ctx context.Context, c *client.Client) error {
				r, err := place{region: args[0]}.openRegion(ctx, c, *on)
				if err != nil {
					return err
				}
				it, err := r.CreateItem(ctx, s)
				if err != nil {
					return err
				}
				return a.print(it.Info(), func(w io.Writer) { writeItem(w, it.Info()) })
			})
		},
	}
	cmd.Flags().BoolVar(&s.Private, "private", false, "what others may do with the region says nothing about the item")
	cmd.Flags().IntVar(&s.Components, "nodes", 1, "spread it over so many of the region's nodes, at least 1")
	cmd.Flags().StringVar(&block, "block", "", "bytes that one of them has before the next has some: a multiple of 64, at least 64, as in 4KiB (default: one run at each)")
	return cmd
}

func writeItem(w io.Writer, i pool.ItemInfo) {
	private := ""
	if i.Private {
		private = ", private"
	}
	fmt.Fprintf(w, "%-20s %10v  %-12s %s  %s%s\n", i.Name, node.Bytes(i.Size), itemNodes(i), i.Rights, i.Owner, private)
}

// itemNodes are the nodes that have an item's bytes: all of one that is spread.
func itemNodes(i pool.ItemInfo) string {
	if len(i.Parts) == 0 {
		return i.Component
	}
	var names []string
	for _, p := range i.Parts {
		names = append(names, p.Component)
	}
	return strings.Join(names, ", ")
}

func (a *app) itemListCommand(on *string) *cobra.Command {
	return &cobra.Command{Use: "ls REGION", Short: "List the items of a region that you may see", Example: "  wherry pool item ls work", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completing(completeRegions, 1), RunE: func(cmd *cobra.Command, args []string) error {
			return a.withPool(cmd, *on, func(ctx context.Context, c *client.Client) error {
				r, err := place{region: args[0]}.openRegion(ctx, c, *on)
				if err != nil {
					return err
				}
				list, err := r.ListItems(ctx)
				if err != nil {
					return err
				}
				return a.print(list, func(w io.Writer) {
					for _, i := range list {
						if i.Name == "" {
							i.Name = fmt.Sprintf("(%d)", i.Number)
						}
						writeItem(w, i)
					}
				})
			})
		}}
}

func (a *app) itemStatCommand(on *string) *cobra.Command {
	return &cobra.Command{Use: "stat REGION NAME", Short: "Describe an item: size, place, owner, grants", Example: "  wherry pool item stat work table", Args: cobra.ExactArgs(2),
		ValidArgsFunction: a.completing(completeRegions, 1), RunE: func(cmd *cobra.Command, args []string) error {
			return a.withItem(cmd, *on, args[0], args[1], func(_ context.Context, it *pool.Item) error {
				i := it.Info()
				return a.print(i, func(w io.Writer) {
					fmt.Fprintf(w, "%s: item %d of generation %d, %v at %v, at node %s, owned by %s; you have %s\n", i.Name, i.Number, i.Generation, node.Bytes(i.Size), it.Address(0), i.Component, i.Owner, i.Rights)
					for _, p := range i.Parts {
						fmt.Fprintf(w, "  %v at node %s\n", node.Bytes(p.Size), p.Component)
					}
					for _, who := range slices.Sorted(maps.Keys(i.Grants)) {
						fmt.Fprintf(w, "  granted %s to %s\n", i.Grants[who], who)
					}
				})
			})
		}}
}

func (a *app) itemResizeCommand(on *string) *cobra.Command {
	return &cobra.Command{Use: "resize REGION NAME SIZE", Short: "Make an item larger or smaller where it lies", Example: "  wherry pool item resize work table 2MiB", Args: cobra.ExactArgs(3),
		ValidArgsFunction: a.completing(completeRegions, 1), RunE: func(cmd *cobra.Command, args []string) error {
			size, err := node.ParseBytes(args[2])
			if err != nil {
				return usageError{err}
			}
			return a.withItem(cmd, *on, args[0], args[1], func(ctx context.Context, it *pool.Item) error {
				if err := it.Resize(ctx, uint64(size)); err != nil {
					return err
				}
				return a.print(it.Info(), func(w io.Writer) { writeItem(w, it.Info()) })
			})
		}}
}

func (a *app) itemGrantCommand(on *string) *cobra.Command {
	return &cobra.Command{
		Use: "grant REGION NAME TOKEN RIGHTS", Short: "Let another token read or write an item",
		Long:    "Set what TOKEN may do with an item beyond what it may do with the region. " + grantHelp,
		Example: "  wherry pool item grant work table reader r",
		Args:    cobra.ExactArgs(4), ValidArgsFunction: a.completing(completeRegions, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := cluster.ParseRights(args[3]); err != nil {
				return usageError{err}
			}
			return a.withItem(cmd, *on, args[0], args[1], func(ctx context.Context, it *pool.Item) error {
				if err := it.Grant(ctx, args[2], args[3]); err != nil {
					return err
				}
				return a.print(map[string]string{"region": args[0], "item": args[1], "to": args[2], "rights": args[3]}, func(io.Writer) {})
			})
		},
	}
}

func (a *app) itemRemoveCommand(on *string) *cobra.Command {
	return &cobra.Command{Use: "rm REGION NAME…", Short: "Destroy items", Example: "  wherry pool item rm work table index", Args: cobra.MinimumNArgs(2),
		ValidArgsFunction: a.completing(completeRegions, 1), RunE: func(cmd *cobra.Command, args []string) error {
			removed := []string{}
			var errs []error
			for _, name := range args[1:] { // one that cannot be destroyed does not keep the others
				err := a.withItem(cmd, *on, args[0], name, func(ctx context.Context, it *pool.Item) error { return it.Destroy(ctx) })
				if err != nil {
					errs = append(errs, err)
					continue
				}
				removed = append(removed, name)
			}
			errs = append(errs, a.print(map[string]any{"removed": removed}, func(io.Writer) {}))
			return errors.Join(errs...)
		}}
}
