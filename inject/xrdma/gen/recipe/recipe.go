// Package recipe rebuilds the ready functions from their sources: what
// go generate runs, and what the test that compares them runs.
package recipe

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/sdk"
)

// ClangMajor is the compiler version that the committed images were made with.
// Another version gives other bytes, and so other identities.
const ClangMajor = 14

// A Function is one image: its manifest is src/NAME.json.
type Function struct {
	Name    string
	Source  string // file in src
	Defines map[string]string
}

// Functions lists all ready functions by name.
func Functions() []Function {
	return []Function{
		{Name: "chase", Source: "chase.c"},
		{Name: "closure", Source: "closure.c"},
		{Name: "count", Source: "asked.c"},
		{Name: "countby", Source: "asked.c"},
		{Name: "countbyif", Source: "asked.c"},
		{Name: "degrees", Source: "degrees.c"},
		{Name: "dependents", Source: "dependents.c"},
		{Name: "echo", Source: "echo.c"},
		{Name: "find", Source: "names.c", Defines: map[string]string{"FIND": "1"}},
		{Name: "inside", Source: "inside.c"},
		{Name: "level", Source: "bfs.c", Defines: map[string]string{"LEVELS": "1"}},
		{Name: "names", Source: "names.c"},
		{Name: "path", Source: "bfs.c"},
		{Name: "query", Source: "query.c"},
		{Name: "reach", Source: "closure.c", Defines: map[string]string{"COUNTS": "1"}},
		{Name: "sssp", Source: "sssp.c"},
		{Name: "sum", Source: "asked.c"},
		{Name: "sumif", Source: "asked.c"},
		{Name: "topdeg", Source: "topdeg.c"},
	}
}

// Source reads a function's C file from folder src, with those headers beside
// it that it includes, directly or not.
func Source(src string, f Function) (cbuild.Source, error) {
	out := cbuild.Source{Name: f.Source, Includes: map[string][]byte{}}
	code, err := os.ReadFile(filepath.Join(src, f.Source))
	if err != nil {
		return cbuild.Source{}, fmt.Errorf("recipe: %s: %w", f.Name, err)
	}
	out.Code = code
	for queue := [][]byte{code}; len(queue) > 0; queue = queue[1:] {
		for _, name := range included(queue[0]) {
			if _, have := out.Includes[name]; have || name == sdk.HeaderName || sdk.Parts()[name] != "" {
				continue
			}
			header, err := os.ReadFile(filepath.Join(src, name))
			if err != nil {
				return cbuild.Source{}, fmt.Errorf("recipe: %s: %w", f.Name, err)
			}
			out.Includes[name] = header
			queue = append(queue, header)
		}
	}
	return out, nil
}

// included lists the files that code includes in quotes.
func included(code []byte) []string {
	var names []string
	for line := range strings.Lines(string(code)) {
		if rest, ok := strings.CutPrefix(line, `#include "`); ok {
			name, _, _ := strings.Cut(rest, `"`)
			names = append(names, name)
		}
	}
	return names
}

// Build makes all functions' images from folder src, in the order of Functions.
func Build(ctx context.Context, src string, tools cbuild.Tools) ([]*image.Image, error) {
	modules := map[string][]byte{} // functions that differ in their manifest only share one
	var out []*image.Image
	for _, f := range Functions() {
		manifest, err := readManifest(src, f)
		if err != nil {
			return nil, err
		}
		source, err := Source(src, f)
		if err != nil {
			return nil, err
		}
		key := fmt.Sprint(f.Source, f.Defines)
		if modules[key] == nil {
			modules[key], err = cbuild.Compile(ctx, source, cbuild.Options{Tools: tools, Defines: f.Defines, Bare: true})
			if err != nil {
				return nil, fmt.Errorf("recipe: %s: %w", f.Name, err)
			}
		}
		manifest.Source = source.Hash()
		img, err := image.Build(manifest, image.Entry{Form: image.Wasm, Code: modules[key]})
		if err != nil {
			return nil, fmt.Errorf("recipe: %s: %w", f.Name, err)
		}
		out = append(out, img)
	}
	return out, nil
}

func readManifest(src string, f Function) (image.Manifest, error) {
	text, err := os.ReadFile(filepath.Join(src, f.Name+".json"))
	if err != nil {
		return image.Manifest{}, fmt.Errorf("recipe: %s: %w", f.Name, err)
	}
	manifest, err := image.ParseManifest(text)
	if err != nil {
		return image.Manifest{}, fmt.Errorf("recipe: %s.json: %w", f.Name, err)
	}
	if manifest.Name != f.Name {
		return image.Manifest{}, fmt.Errorf("recipe: %s.json calls the function %q", f.Name, manifest.Name)
	}
	return manifest, nil
}
