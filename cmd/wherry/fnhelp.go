package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/schema"
)

// functionHelp makes "fn run NAME --help" describe the function NAME; without a
// name, or with one that is no function, it is the command's own help.
func (a *app) functionHelp(cmd *cobra.Command) {
	usual := cmd.HelpFunc()
	cmd.SetHelpFunc(func(c *cobra.Command, args []string) {
		names := c.Flags().Args()
		if len(names) != 1 {
			usual(c, args)
			return
		}
		img, err := loadImage(names[0])
		if err != nil {
			fmt.Fprintf(a.err, "wherry: %v\n", err)
			usual(c, args)
			return
		}
		writeFunctionHelp(c.OutOrStdout(), names[0], img.Manifest())
	})
}

// writeFunctionHelp says what a function does, how it is called, and what it answers.
func writeFunctionHelp(w io.Writer, name string, m image.Manifest) {
	if text := strings.TrimSpace(m.Description); text != "" {
		fmt.Fprintf(w, "%s\n\n", text)
	}
	line := "  wherry fn run " + name
	switch {
	case len(m.Windows) > 0 || m.Rows != nil || m.Start != image.StartFirst:
		line += " --on DATASET"
	default:
		line += " --node NODE"
	}
	if m.Params == nil {
		line += " --in FILE"
	} else {
		for _, f := range m.Params.Fields {
			if f.Default == nil {
				line += fmt.Sprintf(" --arg %s=%s", f.Name, strings.ToUpper(f.Name))
			}
		}
	}
	fmt.Fprintf(w, "Usage:\n%s\n\n", line)
	if m.Params == nil {
		fmt.Fprintf(w, "Parameters: none with names; the payload is raw bytes (--in FILE)\n")
	} else if fields := m.Params.Fields; len(fields) == 0 {
		fmt.Fprintf(w, "Parameters: none\n")
	} else {
		fmt.Fprintf(w, "Parameters (--arg NAME=VALUE):\n")
		for i := range fields {
			writeField(w, "  ", &fields[i])
		}
	}
	if m.Result == nil {
		fmt.Fprintf(w, "\nAnswer: raw bytes\n")
	} else {
		fmt.Fprintf(w, "\nAnswer (%s):\n", m.ResultForm)
		for i := range m.Result.Fields {
			writeField(w, "  ", &m.Result.Fields[i])
		}
	}
	fmt.Fprintf(w, "\nwherry fn run --help lists the options.\n")
}

// writeField describes a parameter, or a field of a result: name, type, what it means, which values it takes.
func writeField(w io.Writer, indent string, f *schema.Field) {
	help := f.Help
	if f.Default != nil {
		help += fmt.Sprintf(" (default %q)", *f.Default)
	}
	fmt.Fprintf(w, "%s%-12s %-8s %s\n", indent, f.Name, f.Type, strings.TrimSpace(help))
	more := ""
	switch {
	case f.IsRow():
		more = "a row's number; of a graph a vertex: its name if the vertices have names"
	case f.Name == "vertices" && f.Type == schema.Str:
		more = "names if the graph's vertices have names, then #12 is a number"
	case len(f.OneOf) > 0:
		more = "one of " + strings.TrimSuffix(strings.Join(f.OneOf, ", "), ", ")
	}
	if more != "" {
		fmt.Fprintf(w, "%s%-12s %-8s %s\n", indent, "", "", more)
	}
}
