// Command gen makes the graph that is built into debgraph. It asks apt for its
// package index, reads the signed Release files for where and when that is from,
// and writes the graph beside the package:
//
//	go run ./demo/debgraph/gen -o demo/debgraph/bookworm.graph
//
// The same index gives the same bytes.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/wherry-fabric/wherry/demo/debgraph"
	"github.com/wherry-fabric/wherry/demo/debgraph/apt"
)

// aptTimeout bounds apt-cache, which takes about a second.
const aptTimeout = 2 * time.Minute

// maxGraphBytes is the most that may be committed.
const maxGraphBytes = 2 << 20

func main() {
	out := flag.String("o", "", "write the graph to this `file`")
	index := flag.String("index", "", "read this package index `file` instead of asking apt-cache")
	lists := flag.String("lists", "/var/lib/apt/lists", "`directory` of apt's Release files")
	title := flag.String("title", "Debian bookworm main, amd64", "what to call the graph")
	flag.Parse()
	if err := run(*out, *index, *lists, *title); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(out, indexFile, lists, title string) error {
	if out == "" || flag.NArg() > 0 {
		return errors.New("give the file to write with -o, and nothing else; -h lists the flags")
	}
	ctx, cancel := context.WithTimeout(context.Background(), aptTimeout)
	defer cancel()
	command := "apt-cache " + strings.Join(apt.Args("dumpavail"), " ")
	var index []byte
	var err error
	if indexFile == "" {
		index, err = apt.Index(ctx)
	} else {
		command = "a package index from a file"
		index, err = os.ReadFile(indexFile)
	}
	if err != nil {
		return err
	}
	g, err := debgraph.BuildIndex(bytes.NewReader(index), "amd64")
	if err != nil {
		return err
	}
	sum := sha256.Sum256(index)
	g.Meta.Title, g.Meta.Command = title, command
	g.Meta.InputSHA256, g.Meta.InputBytes = hex.EncodeToString(sum[:]), int64(len(index))
	if g.Meta.Releases, err = releases(lists); err != nil {
		return err
	}
	file, err := debgraph.Encode(g)
	if err != nil {
		return err
	}
	if len(file) > maxGraphBytes {
		return fmt.Errorf("the graph takes %d bytes, at most %d may be committed", len(file), maxGraphBytes)
	}
	if err := os.WriteFile(out, file, 0o644); err != nil {
		return err
	}
	fmt.Printf("%s: %d bytes, sha256 %x\n", out, len(file), sha256.Sum256(file))
	fmt.Printf("vertices %d, edges %d, index sha256 %s\n%+v\n", g.Len(), g.Edges(), g.Meta.InputSHA256, g.Meta.Stats)
	for _, r := range g.Meta.Releases {
		fmt.Printf("%+v\n", r)
	}
	return nil
}

// releases describes the Release files that apt keeps, main first.
func releases(dir string) ([]debgraph.Release, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*InRelease"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no Release files in %s (run apt-get update): %w", dir, cmp.Or(err, os.ErrNotExist))
	}
	var all []debgraph.Release
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(data)
		r := debgraph.Release{SHA256: hex.EncodeToString(sum[:])}
		fields := map[string]*string{"Origin": &r.Origin, "Suite": &r.Suite, "Codename": &r.Codename, "Version": &r.Version, "Date": &r.Date}
		sc := bufio.NewScanner(bytes.NewReader(data))
		for sc.Scan() {
			key, value, ok := strings.Cut(sc.Text(), ":")
			if dst := fields[key]; ok && dst != nil && *dst == "" {
				*dst = strings.TrimSpace(value)
			}
		}
		if err := sc.Err(); err != nil || r.Date == "" {
			return nil, fmt.Errorf("%s has no Date: %w", f, cmp.Or(err, os.ErrInvalid))
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b debgraph.Release) int { return strings.Compare(a.Codename, b.Codename) })
	return all, nil
}
