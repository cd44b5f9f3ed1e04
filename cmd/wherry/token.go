package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/cluster"
)

func (a *app) tokenCommand() *cobra.Command {
	parent := noun(&cobra.Command{
		Use:   "token",
		Short: "Make and list the tokens that identify nodes and users",
		Long: `A token says who somebody is to the nodes, and what they may do at all:
inject functions, read, write, administer, or be a node themselves (member). A
token file has a token per line, name:capabilities:secret, and mode 0600. Nodes
get a file with everybody's tokens, people one with their own.`,
		Example: "  wherry token new n1 --node --file tokens\n  wherry token new ann --file tokens\n  wherry token ls --file tokens",
	})
	var file, caps string
	var isNode bool
	make := &cobra.Command{
		Use:   "new NAME",
		Short: "Make a token and append it to a file",
		Long: `Make a token and append it to a token file, which is made with mode 0600 if it
is not there. Its folder must be there; only that of the file you did not name,
~/.config/wherry, is made too, and said to be.`,
		Example: `  wherry token new n1 --node --caps inject,read --file /etc/wherry/tokens
  wherry token new reader --caps inject,read --file reader.token`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.newToken(args[0], caps, isNode, file) },
	}
	make.Flags().StringVar(&file, "file", defaultTokenFile(), "the token file; made with mode 0600 if it is not there")
	make.Flags().Var(newList(&caps, "inject,read,write"), "caps", "capabilities, with commas between: inject, read, write, admin, device, member, or none; a node has member besides")
	make.Flags().BoolVar(&isNode, "node", false, "for a node")
	list := &cobra.Command{
		Use:     "ls",
		Short:   "List a file's tokens, without their secrets",
		Example: "  wherry token ls --file /etc/wherry/tokens --json",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return a.listTokens(file) },
	}
	list.Flags().StringVar(&file, "file", defaultTokenFile(), "the token file")
	parent.AddCommand(make, list)
	return parent
}

func (a *app) newToken(name, capsText string, isNode bool, file string) error {
	caps, err := cluster.ParseCaps(capsText)
	if err != nil {
		return usageError{err}
	}
	if isNode {
		caps |= cluster.CapMember
	}
	t, err := cluster.NewToken(name, caps)
	if err != nil {
		return usageError{err}
	}
	if file == "" {
		return usagef("no token file: give --file")
	}
	if _, err := os.Stat(file); err == nil {
		have, err := cluster.LoadTokens(file)
		if err != nil {
			return err
		}
		if _, ok := have.Lookup(name); ok {
			return usagef("%s has a token called %q already: choose another name, or take the line out first", file, name)
		}
		if have.Len() >= cluster.MaxTokens {
			return usagef("%s has %d tokens, as many as a file can have: take some out first", file, have.Len())
		}
	}
	if err := a.tokenFolder(filepath.Dir(file)); err != nil {
		return err
	}
	if err := appendLine(file, t.Line()); err != nil {
		return err
	}
	return a.print(map[string]any{"name": t.Name, "caps": capList(t.Caps), "file": file}, func(w io.Writer) {
		fmt.Fprintf(w, "%s (%v) is in %s\n", t.Name, t.Caps, file)
	})
}

// appendLine puts a line at the end of a private file, whose last line may lack its end.
// If that fails, as on a full disk, the file is as it was.
func appendLine(file, line string) error {
	_, err := os.Stat(file)
	isNew := errors.Is(err, fs.ErrNotExist)
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if last := []byte{'\n'}; info.Size() > 0 {
		if _, err := f.ReadAt(last, info.Size()-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			line = "\n" + line
		}
	}
	if _, err := f.WriteString(line + "\n"); err != nil {
		if isNew {
			return errors.Join(err, os.Remove(file))
		}
		return errors.Join(err, f.Truncate(info.Size())) // part of a line would be in the way of the next
	}
	return f.Close()
}

// capList is capabilities as JSON has them in every answer.
func capList(c cluster.Caps) []string { return strings.Split(c.String(), ",") }

// tokenFolder sees to it that there is a folder for a token file. Any but the usual
// one is a mistake if it is not there.
func (a *app) tokenFolder(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return usagef("--file: %s is not a folder", dir)
	case err == nil || !errors.Is(err, fs.ErrNotExist):
		return err
	case standardTokenFile() == "" || dir != filepath.Dir(standardTokenFile()):
		return usagef("--file: there is no folder %s: make it (mkdir -m 700 -p %s), or correct --file", dir, dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	fmt.Fprintf(a.err, "wherry: made the folder %s\n", dir)
	return nil
}

func (a *app) listTokens(file string) error {
	ts, err := cluster.LoadTokens(file)
	if err != nil {
		return err
	}
	type row struct {
		Name string   `json:"name"`
		Caps []string `json:"caps"`
	}
	rows := []row{}
	for _, n := range ts.Names() {
		t, _ := ts.Lookup(n)
		rows = append(rows, row{n, capList(t.Caps)})
	}
	return a.print(rows, func(w io.Writer) {
		for _, r := range rows {
			fmt.Fprintf(w, "%-20s %s\n", r.Name, strings.Join(r.Caps, ","))
		}
	})
}
