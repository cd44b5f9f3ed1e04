package invoke

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/schema"
)

// Names of vertices are translated where the graph is: the ready function find
// turns names into vertices before a call, and the function names turns
// vertices into names after it. Functions themselves see numbers only.

// numberSign before digits means the vertex with that number, on a graph whose vertices have names.
const numberSign = "#"

// nameBatch is how many vertices one call of the function names is asked for:
// their numbers, of up to ten digits, fit one payload.
const nameBatch = 4096

// named reports whether the table is a graph whose vertices have names.
func named(t *cluster.Table) bool {
	return t != nil && t.Kind == cluster.CSR && slices.ContainsFunc(t.Shards, func(s cluster.Shard) bool {
		return len(s.Windows) > cluster.NamesWindow && s.Windows[cluster.NameOffsetsWindow].Size > 0
	})
}

// resolve replaces names of vertices in the arguments by their numbers.
func (r *Request) resolve(ctx context.Context, rt *inject.Runtime) error {
	words := r.vertexWords()
	if len(words) == 0 {
		return nil
	}
	sought := map[string][]uint64{}
	for _, list := range words {
		for _, w := range list {
			if strings.Contains(w, "\n") {
				return fmt.Errorf("%w: a vertex's name has no line end: %.40q", ErrRequest, w)
			}
			sought[w] = nil
		}
	}
	img, err := readyImage(rt, "find")
	if err != nil {
		return err
	}
	list := strings.Join(slices.Sorted(maps.Keys(sought)), "\n")
	found, err := Run(ctx, rt, Request{Image: img, Table: r.Table, Args: map[string]string{"names": list}})
	if err != nil {
		return fmt.Errorf("look up the names of vertices: %w", err)
	}
	for _, p := range found.Parts {
		for i := range p.Len() {
			name := string(p.Text(i, 1))
			sought[name] = append(sought[name], p.Uint(i, 0))
		}
	}
	args := maps.Clone(r.Args)
	for param, list := range words {
		numbers := make([]string, len(list))
		for i, w := range list {
			if numbers[i], err = r.number(param, w, sought[w]); err != nil {
				return err
			}
		}
		args[param] = strings.Join(numbers, ",")
	}
	r.Args = args
	return nil
}

// vertexWords are the names that arguments give for vertices, by parameter; nil where vertices have no names.
func (r *Request) vertexWords() map[string][]string {
	m := r.Image.Call()
	if m.Params == nil || !named(r.Table) {
		return nil
	}
	words := map[string][]string{}
	for _, f := range m.Params.Schema().Fields {
		text, given := r.Args[f.Name]
		switch {
		case !given:
		case f.Name == VerticesParam && f.Type == schema.Str:
			if list := splitNames(text); len(list) > 0 { // else checkVertices says what is wrong
				words[f.Name] = list
			}
		case f.IsRow() || m.Start == image.StartOwner && f.Name == m.OwnerParam:
			words[f.Name] = []string{text}
		}
	}
	return words
}

// splitNames splits a list at commas and white space; double quotes keep a name together.
func splitNames(text string) (list []string) {
	quoted, open := false, false
	var word strings.Builder
	end := func() {
		if open {
			list = append(list, word.String())
		}
		word.Reset()
		open = false
	}
	for _, c := range text {
		switch {
		case c == '"':
			quoted, open = !quoted, true
		case !quoted && (c == ',' || unicode.IsSpace(c)):
			end()
		default:
			word.WriteRune(c)
			open = true
		}
	}
	end()
	return list
}

// number is the one vertex that a word means, given those of that name.
func (r *Request) number(param, word string, vertices []uint64) (string, error) {
	switch len(vertices) {
	case 1:
		return strconv.FormatUint(vertices[0], 10), nil
	case 0:
		digits, ok := strings.CutPrefix(word, numberSign)
		if v, err := strconv.ParseUint(digits, 10, 64); ok && err == nil {
			return strconv.FormatUint(v, 10), nil
		}
		return "", fmt.Errorf("%w: %s: no vertex of %s is called %.64q; %s12 means the vertex with the number 12", ErrRequest, param, r.Table.Name, word, numberSign)
	}
	slices.Sort(vertices)
	return "", fmt.Errorf("%w: %s: %d vertices of %s are called %.64q: give one by its number, as in %s%d", ErrRequest, param, len(vertices), r.Table.Name, word, numberSign, vertices[0])
}

// AddNames adds the names of vertices to an answer about a graph that has them:
// a field name for the field vertex, and a field X_name for any other field X that
// the image declares to be a row. Fields that are there keep their places.
func (a *Answer) AddNames(ctx context.Context, rt *inject.Runtime, t *cluster.Table) error {
	if a.Schema == nil || !named(t) {
		return nil
	}
	wide, rows := namedSchema(a.Schema)
	if len(rows) == 0 {
		return nil
	}
	img, err := readyImage(rt, "names")
	if err != nil {
		return err
	}
	n := &namer{rt: rt, image: img, table: t, rows: rows, names: map[uint64][]byte{}}
	if n.build, err = schema.NewPartBuilder(wide); err != nil {
		return err
	}
	var parts []schema.Rows
	for _, p := range a.Parts {
		for first := 0; first < p.Len(); first += nameBatch / len(rows) {
			if err := n.add(ctx, &p, first, min(first+nameBatch/len(rows), p.Len())); err != nil {
				return fmt.Errorf("look up the names of vertices: %w", err)
			}
			parts = append(parts, n.build.Rows())
		}
	}
	a.Schema, a.Parts = wide, parts
	return nil
}

// namedSchema is a result's schema with fields for names, and the fields that they are the names of.
func namedSchema(s *schema.Schema) (wide *schema.Schema, rows []int) {
	wide = &schema.Schema{}
	for _, f := range s.Fields {
		wide.Fields = append(wide.Fields, schema.Field{Name: f.Name, Type: f.Type, Help: f.Help})
	}
	for i := range s.Fields {
		name := s.Fields[i].Name + "_name"
		if s.Fields[i].Name == "vertex" {
			name = "name"
		}
		if s.Fields[i].IsRow() && wide.Index(name) < 0 && len(wide.Fields) < schema.MaxFields {
			wide.Fields = append(wide.Fields, schema.Field{Name: name, Type: schema.Str, Help: "name of " + s.Fields[i].Name})
			rows = append(rows, i)
		}
	}
	return wide, rows
}

// namer adds names to rows, a batch at a time.
type namer struct {
	rt    *inject.Runtime
	image *image.Image
	table *cluster.Table
	rows  []int             // fields that are vertices
	names map[uint64][]byte // of this batch
	build *schema.PartBuilder
}

func (n *namer) add(ctx context.Context, p *schema.Rows, first, end int) error {
	clear(n.names)
	var list []byte
	for i := first; i < end; i++ {
		for _, f := range n.rows {
			if v := p.Uint(i, f); v < n.table.Rows && n.names[v] == nil { // what is no vertex has no name
				n.names[v] = []byte{}
				list = append(strconv.AppendUint(list, v, 10), ',')
			}
		}
	}
	payload, err := n.image.Call().Params.EncodeArgs(map[string]string{VerticesParam: string(list)}, nil)
	if err != nil {
		return err
	}
	// A payload, and not arguments: those would be taken for names.
	answer, err := Run(ctx, n.rt, Request{Image: n.image, Table: n.table, Payload: payload})
	if err != nil {
		return err
	}
	for _, part := range answer.Parts {
		for i := range part.Len() {
			n.names[part.Uint(i, 0)] = part.Text(i, 1)
		}
	}
	fields := p.Schema().Fields
	for i := first; i < end; i++ {
		cells := make([][]byte, 0, len(fields)+len(n.rows))
		for f := range fields {
			if fields[f].Type == schema.Str {
				cells = append(cells, p.Text(i, f))
			} else {
				cells = append(cells, p.Cell(i, f))
			}
		}
		for _, f := range n.rows {
			cells = append(cells, n.names[p.Uint(i, f)])
		}
		if err := n.build.Append(cells); err != nil {
			return err
		}
	}
	return nil
}
