package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

// completionExamples gives the commands that cobra makes examples of how a shell loads them.
func completionExamples(root *cobra.Command) {
	lines := map[string]string{
		"completion": "  source <(wherry completion bash)",
		"bash":       "  source <(wherry completion bash)\n  wherry completion bash >/etc/bash_completion.d/wherry",
		"zsh":        "  wherry completion zsh >\"${fpath[1]}/_wherry\"",
		"fish":       "  wherry completion fish >~/.config/fish/completions/wherry.fish",
		"powershell": "  wherry completion powershell | Out-String | Invoke-Expression",
	}
	c, _, err := root.Find([]string{"completion"})
	if err != nil {
		return
	}
	c.Example = lines[c.Name()]
	for _, shell := range c.Commands() {
		shell.Example = lines[shell.Name()]
	}
}

// completeTime is how long the shell's Tab may wait for a node: longer, and people think that the shell hangs.
const completeTime = 2 * time.Second

// completer lists the words that may stand where the user pressed Tab; a word may be followed by a tab and its
// meaning. Nothing can be reported there: what cannot be found out is no word.
type completer func(a *app, cmd *cobra.Command, toComplete string) []string

// completing offers a completer's words for the first most arguments, each word once; most 0 is any number.
func (a *app) completing(words completer, most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list := slices.DeleteFunc(words(a, cmd, toComplete), func(w string) bool {
			word, _, _ := strings.Cut(w, "\t")
			return slices.Contains(args, word) || !strings.HasPrefix(word, toComplete)
		})
		directive := cobra.ShellCompDirectiveNoFileComp
		if cmd.Name() == "run" || cmd.Name() == "inspect" {
			directive = cobra.ShellCompDirectiveDefault // a function may be a file
		}
		if len(list) > 0 && strings.HasSuffix(list[0], "=") {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return list, directive
	}
}

// completeFlag offers words for a flag's value.
func (a *app) completeFlag(cmd *cobra.Command, flag string, words completer) {
	complete := a.completing(words, 0)
	err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		list, directive := complete(cmd, nil, toComplete)
		return list, directive | cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic("the flag that is completed: " + err.Error())
	}
}

// asked is what a node answers within completeTime; nil if it does not.
func (a *app) asked(cmd *cobra.Command, ask func(ctx context.Context, c *client.Client) []string) (words []string) {
	a.quiet = true // warnings would stand in the line that is typed
	a.timeout = completeTime
	if cmd.Context() == nil {
		cmd.SetContext(context.Background())
	}
	_ = a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
		words = ask(ctx, c)
		return nil
	})
	return words
}

// completeFunctions are the ready functions.
func completeFunctions(*app, *cobra.Command, string) (words []string) {
	for _, name := range xrdma.List() {
		if img, err := xrdma.Lookup(name); err == nil {
			first, _, _ := strings.Cut(img.Manifest().Description, "\n")
			words = append(words, name+"\t"+first)
		}
	}
	return words
}

// completeDatasets are the datasets that the user may see.
func completeDatasets(a *app, cmd *cobra.Command, _ string) []string {
	return a.asked(cmd, func(ctx context.Context, c *client.Client) (words []string) {
		list, err := c.List(ctx)
		if err != nil {
			return nil
		}
		for _, d := range list {
			words = append(words, d.Name)
		}
		return words
	})
}

// completeNodes are the nodes that the first one knows.
func completeNodes(a *app, cmd *cobra.Command, _ string) []string {
	return a.asked(cmd, func(_ context.Context, c *client.Client) (words []string) {
		for _, n := range c.Nodes() {
			words = append(words, n.Member.Name)
		}
		return words
	})
}

// completeArgs are the parameters of the function that the line names, those that are not given yet; behind
// a parameter that is a column, the columns of the dataset.
func completeArgs(a *app, cmd *cobra.Command, toComplete string) (words []string) {
	names := cmd.Flags().Args()
	if len(names) == 0 {
		return nil
	}
	img, err := loadImage(names[0])
	if err != nil || img.Manifest().Params == nil {
		return nil
	}
	given, _ := cmd.Flags().GetStringArray("arg")
	param, _, valued := strings.Cut(toComplete, "=")
	for _, f := range img.Manifest().Params.Fields {
		switch {
		case !valued && !slices.ContainsFunc(given, func(arg string) bool { return strings.HasPrefix(arg, f.Name+"=") }):
			words = append(words, f.Name+"=")
		case valued && f.Name == param && f.Type == "column":
			for _, column := range a.columns(cmd) {
				words = append(words, param+"="+column)
			}
		case valued && f.Name == param && !f.IsRow():
			for _, v := range f.OneOf {
				words = append(words, param+"="+v)
			}
		}
	}
	return words
}

// columns are those of the dataset that the line names.
func (a *app) columns(cmd *cobra.Command) []string {
	on := cmd.Flags().Lookup("on").Value.String()
	if on == "" {
		return nil
	}
	return a.asked(cmd, func(ctx context.Context, c *client.Client) []string {
		d, err := c.Stat(ctx, on)
		if err != nil {
			return nil
		}
		return append(d.Table.Schema.Names(), d.Table.Columns.Names()...)
	})
}
