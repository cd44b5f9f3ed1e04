package client

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/invoke"
)

// readmeBlock cuts the first block of a language out of a document.
func readmeBlock(t *testing.T, document, language string) string {
	t.Helper()
	_, rest, _ := strings.Cut(document, "```"+language+"\n")
	block, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatalf("the document has no block of %s", language)
	}
	return block
}

// readmeFunction builds the function that sdk/README.md begins with.
func readmeFunction(t *testing.T) *image.Image {
	t.Helper()
	document, err := os.ReadFile("../sdk/README.md")
	if err != nil {
		t.Fatal(err)
	}
	tools, err := cbuild.FindTools()
	if errors.Is(err, cbuild.ErrNoCompiler) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	m, err := image.ParseManifest([]byte(readmeBlock(t, string(document), "json")))
	if err != nil {
		t.Fatal(err)
	}
	img, err := cbuild.Build(t.Context(), cbuild.Source{Name: "total.c", Code: []byte(readmeBlock(t, string(document), "c"))}, m, cbuild.Options{Tools: tools})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// TestReadmeFunction runs the first function that people copy, on fewer rows
// than there are nodes too, and on rows that leave a node without any.
func TestReadmeFunction(t *testing.T) {
	img := readmeFunction(t)
	f := newFarm(t, "shm", "n1", "n2", "n3")
	c := f.connect(t)
	f.meshed(t, c)
	for _, rows := range []int{0, 1, 2, 3, 10} {
		for name, spread := range map[string]dataset.Spread{"block": {}, "cyclic": {Kind: cluster.Cyclic}, "keyed": {Kind: cluster.Hash, Key: "n"}} {
			name = fmt.Sprintf("%s-%d", name, rows)
			spec := LoadSpec{Name: name, Input: dataset.NewText(name, []byte(strings.Repeat("7\n", rows))),
				Options: dataset.Options{Format: dataset.CSV, Schema: parseSchema(t, "n:u64"), Spread: spread}}
			if _, err := c.Load(t.Context(), spec, nil); err != nil {
				t.Fatal(err)
			}
			table, err := c.Table(t.Context(), name, "")
			if err != nil {
				t.Fatal(err)
			}
			answer, err := invoke.Run(t.Context(), c.Runtime(), invoke.Request{Image: img, Table: table})
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if got := answer.Parts[0].Strings(0)[0]; got != fmt.Sprint(7*rows) {
				t.Errorf("%s: the total is %s, want %d", name, got, 7*rows)
			}
		}
	}
}
