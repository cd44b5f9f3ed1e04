// Package xrdma is a library of ready functions that run where the data is.
//
//	chase      follow row numbers through a sharded table of u64
//	closure    every vertex that can be reached from some
//	reach      how many those are
//	level      every vertex that can be reached from one, with its distance
//	path       one shortest path
//	sssp       every vertex that can be reached from one, with its distance by the weights of edges
//	degrees    how many edges each vertex has
//	topdeg     the vertices with most edges
//	dependents how many vertices reach each of some
//	inside     how many vertices have all their edges within a set
//	find       the vertices that have certain names
//	names      the names of vertices
//	count      rows that match a condition on a column
//	countby    rows of each value of a column; countbyif: of those that match
//	sum        number, sum, least, greatest of a column; sumif: of the rows that match
//	           (count to sumif are names of queries: package invoke)
//	query      filter, project, group and aggregate columns: see package query
//	echo       reply with the payload
//
// Each one's manifest (src/NAME.json) has its parameters and result, and its C
// source begins with how it works and what it costs. closure and reach search
// all shards at once and send each vertex to its owner once at most; level,
// path, sssp and dependents go in rounds of all elements (src/rounds.h, Round). A chase
// uses a hop for each time it changes elements.
//
// All of them are right on every sharding. Where rows are not in ranges (cyclic,
// and hash without a key) they ask their host where a row is, once per vertex
// and element or at every step of a chase; if shards are ranges they know.
//
// The images are part of the program. They are built from src by go generate,
// with the compiler that gen/recipe names; a test compares them.
package xrdma

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/schema"
)

//go:generate go run ./gen -dir .

//go:embed wfn/*.wfn src/*.c
var files embed.FS

// ErrUnknown says that there is no ready function of a name.
var ErrUnknown = errors.New("no such function")

// List names all ready functions, sorted.
func List() []string {
	entries, err := files.ReadDir("wfn")
	if err != nil {
		panic("xrdma: the program was built without its functions: " + err.Error())
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimSuffix(e.Name(), ".wfn")
	}
	return names
}

// Lookup returns a ready function's image.
func Lookup(name string) (*image.Image, error) {
	b, err := files.ReadFile("wfn/" + name + ".wfn")
	if err != nil {
		return nil, unknown(name)
	}
	return image.Parse(b)
}

// ID is the identity of a ready function's image. It reads the image's header only.
func ID(name string) (image.ID, error) {
	f, err := files.Open("wfn/" + name + ".wfn")
	if err != nil {
		return image.ID{}, unknown(name)
	}
	defer f.Close()
	var head [image.HeaderBytes]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return image.ID{}, err
	}
	h, err := image.ParseHeader(head[:])
	return h.ID, err
}

func unknown(name string) error {
	return fmt.Errorf("%w: %q; %s", ErrUnknown, name, schema.Suggest(name, List()))
}

// Source is the C code of a ready function that has a file of its own.
func Source(name string) ([]byte, error) {
	code, err := files.ReadFile("src/" + name + ".c")
	if err != nil {
		return nil, fmt.Errorf("%w: %q has no source of its own", ErrUnknown, name)
	}
	return code, nil
}

// ready is Lookup for names that a test has seen to be there.
func ready(name string) *image.Image {
	img, err := Lookup(name)
	if err != nil {
		panic("xrdma: the program was built with a bad function: " + err.Error())
	}
	return img
}

// Chase follows a chain of row numbers through a sharded table: see ChaseArgs.
func Chase() *image.Image { return ready("chase") }

// Closure finds every vertex that can be reached: see ClosureArgs, Vertices.
func Closure() *image.Image { return ready("closure") }

// Echo replies with its payload.
func Echo() *image.Image { return ready("echo") }
