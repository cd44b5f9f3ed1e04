package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestNumbersHaveBounds: who reads a flag's help knows which numbers and times it takes.
func TestNumbersHaveBounds(t *testing.T) {
	number := regexp.MustCompile(`(?m)^ .*--([a-z-]+) (?:u?int[0-9]*|duration) +(.*)$`)
	bounds := regexp.MustCompile(`\d+ to \d+|at least|at most|more than 0|, from 0|0 for all`)
	looked := 0
	everyCommand((&app{out: io.Discard, err: io.Discard}).rootCommand(), func(c *cobra.Command) {
		for _, m := range number.FindAllStringSubmatch(c.LocalFlags().FlagUsages(), -1) {
			if looked++; !bounds.MatchString(m[2]) {
				t.Errorf("%s --%s does not say what it takes: %s", c.CommandPath(), m[1], m[2])
			}
		}
	})
	if looked < 25 {
		t.Errorf("only %d flags were looked at", looked)
	}
}

// TestListsCanBeRepeated: of a flag that takes several things, each one given counts, whether with commas between or flag by flag.
func TestListsCanBeRepeated(t *testing.T) {
	several := regexp.MustCompile(`may be repeated|with commas between|[a-z]=tcp://`)
	anyFlag := regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+) `)
	looked := map[string]bool{}
	everyCommand((&app{out: io.Discard, err: io.Discard}).rootCommand(), func(c *cobra.Command) {
		for _, m := range anyFlag.FindAllStringSubmatch(c.LocalFlags().FlagUsages(), -1) {
			f := c.LocalFlags().Lookup(m[1])
			if !several.MatchString(f.Usage) {
				continue
			}
			looked[f.Name] = true
			for _, v := range []string{"k1=v1", "k2=v2"} {
				if err := f.Value.Set(v); err != nil {
					t.Fatalf("%s --%s: %v", c.CommandPath(), f.Name, err)
				}
			}
			if got := f.Value.String(); !strings.Contains(got, "k1=v1") || !strings.Contains(got, "k2=v2") {
				t.Errorf("%s --%s k1=v1 --%[2]s k2=v2 is %s", c.CommandPath(), f.Name, got)
			}
		}
	})
	for _, name := range []string{"peers", "listen", "caps", "nodes", "host", "arg", "limit", "at", "data-root", "include"} {
		if !looked[name] {
			t.Errorf("--%s was not looked at", name)
		}
	}
}

// commandLine finds the program's command lines in a shell's words: what follows "wherry ".
var commandLine = regexp.MustCompile(`(?:^|[\s(/])wherry ([a-z][^|;&>#)]*)`)

// parses says why the program would not take a command line: a command or flag that it
// has not. Their values are not looked at.
func parses(line string) error {
	words := strings.Fields(line)
	root := (&app{out: io.Discard, err: io.Discard}).rootCommand()
	c, rest, err := root.Find(words)
	if err != nil {
		return err
	}
	if len(rest) > 0 && c.HasSubCommands() && c.Name() != "node" && c.Name() != "demo" {
		if err := c.Args(c, c.Flags().Args()); err != nil {
			return err
		}
	}
	for _, w := range rest {
		if w == "--" { // another program's line
			break
		}
		name, long := strings.CutPrefix(w, "--")
		if name, _, _ = strings.Cut(name, "="); !long || name == "help" {
			continue
		}
		if c.Flags().Lookup(name) == nil && c.InheritedFlags().Lookup(name) == nil {
			return usagef("%s has no flag --%s", c.CommandPath(), name)
		}
	}
	return nil
}

// TestExamplesParse: the examples in the help name commands and flags that there are.
func TestExamplesParse(t *testing.T) {
	everyCommand((&app{out: io.Discard, err: io.Discard}).rootCommand(), func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			found := commandLine.FindAllStringSubmatch(line, -1)
			if len(found) == 0 {
				t.Errorf("%s: %q is no example", c.CommandPath(), line)
			}
			for _, m := range found {
				if err := parses(m[1]); err != nil {
					t.Errorf("%s: %q: %v", c.CommandPath(), line, err)
				}
			}
		}
	})
}

// flagSpan is a flag in a document's running text.
var flagSpan = regexp.MustCompile("`--([a-z][a-z-]*)[^`\n]*`")

// TestDocumentsParse: so do the command lines in the documents, and the flags that they explain.
func TestDocumentsParse(t *testing.T) {
	var files []string
	for _, pattern := range []string{"*.md", "docs/*.md", "sdk/*.md", "examples/*/*.md", "cmd/wherry/*.md"} {
		found, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	flags := map[string]bool{"help": true}
	everyCommand((&app{out: io.Discard, err: io.Discard}).rootCommand(), func(c *cobra.Command) {
		for _, m := range regexp.MustCompile(`--([a-z][a-z-]*)`).FindAllStringSubmatch(c.LocalFlags().FlagUsages(), -1) {
			flags[m[1]] = true
		}
	})
	span := regexp.MustCompile("`[^`\n]+`")
	looked := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range flagSpan.FindAllStringSubmatch(string(text), -1) {
			if other := strings.Contains(file, "ioforward") || strings.HasSuffix(file, "peers.md"); !other && !flags[m[1]] {
				t.Errorf("%s: no command has the flag %s", file, m[0])
			}
		}
		for i, block := range strings.Split(string(text), "```") {
			lines := strings.Split(block, "\n") // of a shell, where i is odd
			if i%2 == 0 {
				lines = span.FindAllString(block, -1)
			}
			for _, line := range lines {
				line = strings.Trim(line, "`")
				if strings.ContainsAny(line, "|…[") && i%2 == 0 { // a pattern, not a line
					continue
				}
				for _, m := range commandLine.FindAllStringSubmatch(line, -1) {
					if i%2 == 1 && !slices.Contains(nouns(), strings.Fields(m[1])[0]) {
						continue // a sentence
					}
					if looked++; parses(m[1]) != nil {
						t.Errorf("%s: %q: %v", file, line, parses(m[1]))
					}
				}
			}
		}
	}
	if looked < 60 {
		t.Errorf("only %d command lines were found", looked)
	}
}

// nouns are the words that may follow the program's name.
func nouns() (names []string) {
	for _, c := range (&app{out: io.Discard, err: io.Discard}).rootCommand().Commands() {
		names = append(names, c.Name())
	}
	return names
}
