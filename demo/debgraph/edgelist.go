package debgraph

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Rows yields a graph from elsewhere (a packaged dataset, a database), a pair
// at a time.
type Rows interface {
	// Next gives the next edge, or a vertex without one (to is empty); ok is
	// false after the last. One goroutine calls it. The strings are the caller's.
	Next() (from, to string, ok bool, err error)
}

// FromRows makes a graph of what rows yields. Vertices are numbered by their
// names' order; repeated pairs count once, and a pair of one name twice adds the vertex only.
func FromRows(title string, rows Rows) (*Graph, error) {
	ids := make(map[string]uint32)
	var edges []edge
	intern := func(name string) (uint32, error) {
		id, ok := ids[name]
		switch {
		case ok:
			return id, nil
		case name == "" || len(name) > MaxNameBytes:
			return 0, fmt.Errorf("%w: a name of %d bytes, 1 to %d are possible", ErrTooLarge, len(name), MaxNameBytes)
		case len(ids) == MaxVertices:
			return 0, fmt.Errorf("%w: more than %d vertices", ErrTooLarge, MaxVertices)
		}
		id = uint32(len(ids))
		ids[strings.Clone(name)] = id
		return id, nil
	}
	for {
		from, to, ok, err := rows.Next()
		if err != nil {
			return nil, err
		}
		if !ok {
			return numberByName(title, ids, edges), nil
		}
		f, err := intern(from)
		if err != nil {
			return nil, err
		}
		if to == "" {
			continue
		}
		t, err := intern(to)
		if err != nil {
			return nil, err
		}
		if len(edges) == MaxEdges {
			return nil, fmt.Errorf("%w: more than %d edges", ErrTooLarge, MaxEdges)
		}
		edges = append(edges, edge{f, t})
	}
}

func numberByName(title string, ids map[string]uint32, edges []edge) *Graph {
	names := make([]string, 0, len(ids))
	for name := range ids {
		names = append(names, name)
	}
	slices.Sort(names)
	place := make([]uint32, len(names))
	for i, name := range names {
		place[ids[name]] = uint32(i)
	}
	for i, e := range edges {
		edges[i] = edge{place[e.from], place[e.to]}
	}
	return newGraph(names, edges, Meta{Title: title})
}

// maxTextLineBytes holds two names of the greatest length and what is between.
const maxTextLineBytes = 4 * MaxNameBytes

// ReadEdgeList reads a graph from text: one edge a line, "from to", separated
// by blanks. A line with one name is a vertex without edges of its own; empty lines and
// lines that start with # are skipped.
func ReadEdgeList(title string, r io.Reader) (*Graph, error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, maxTextLineBytes), maxTextLineBytes)
	return FromRows(title, &textRows{sc: sc})
}

type textRows struct {
	sc   *bufio.Scanner
	line int
}

func (t *textRows) Next() (from, to string, ok bool, err error) {
	for t.sc.Scan() {
		t.line++
		f := strings.Fields(t.sc.Text())
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		for _, name := range f {
			if len(name) > MaxNameBytes {
				return "", "", false, fmt.Errorf("%w: line %d: a name of %d bytes", ErrTooLarge, t.line, len(name))
			}
		}
		switch len(f) {
		case 1:
			return f[0], "", true, nil
		case 2:
			return f[0], f[1], true, nil
		}
		return "", "", false, fmt.Errorf("debgraph: line %d: %d words; an edge is written \"from to\"", t.line, len(f))
	}
	if errors.Is(t.sc.Err(), bufio.ErrTooLong) {
		return "", "", false, fmt.Errorf("%w: line %d is longer than %d bytes", ErrTooLarge, t.line+1, maxTextLineBytes)
	}
	return "", "", false, t.sc.Err()
}

// Read reads a graph in whichever of the two forms it is in: a file that Encode
// wrote, or an edge list.
func Read(title string, r io.Reader) (*Graph, error) {
	br := bufio.NewReader(r)
	head, err := br.Peek(len(magic))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("debgraph: reading %s: %w", title, err)
	}
	if string(head) != magic {
		return ReadEdgeList(title, br)
	}
	var file bytes.Buffer
	n, err := io.Copy(&file, io.LimitReader(br, maxRawBytes+1))
	if err != nil {
		return nil, fmt.Errorf("debgraph: reading %s: %w", title, err)
	}
	if n > maxRawBytes {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", ErrTooLarge, title, maxRawBytes)
	}
	return Decode(file.Bytes())
}
