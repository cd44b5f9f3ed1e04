// Command gen rebuilds the ready functions: it compiles src/*.c and writes
// wfn/*.wfn. It is run by go generate in inject/xrdma, or as
// go run ./inject/xrdma/gen from the repository's root.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/wherry-fabric/wherry/inject/image/cbuild"
	"github.com/wherry-fabric/wherry/inject/xrdma/gen/recipe"
)

func main() {
	dir := flag.String("dir", "inject/xrdma", "folder that holds src and wfn")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := generate(ctx, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		stop()
		os.Exit(1)
	}
}

func generate(ctx context.Context, dir string) error {
	tools, err := cbuild.FindToolsVersion(ctx, recipe.ClangMajor)
	if err != nil {
		return err
	}
	images, err := recipe.Build(ctx, filepath.Join(dir, "src"), tools)
	if err != nil {
		return err
	}
	for _, img := range images {
		path := filepath.Join(dir, "wfn", img.Name()+".wfn")
		if err := os.WriteFile(path, img.Encode(), 0o644); err != nil {
			return err
		}
		fmt.Printf("%s  %6d bytes  %s\n", img.ID().Short(), img.Size(), path)
	}
	return nil
}
