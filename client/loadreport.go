package client

import (
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/dataset/part"
	"github.com/wherry-fabric/wherry/schema"
)

// ColumnsReport is what a load of columns made of its files.
type ColumnsReport struct {
	Parts   int            `json:"parts,omitempty"`
	Chunks  int            `json:"chunks,omitempty"`
	Columns []ColumnReport `json:"columns,omitempty"`
	// PartRows are the rows of the parts that were written, which Parts, Chunks and Columns describe: with Append more than were added, if small parts were
	// written again together with them.
	PartRows uint64              `json:"part_rows,omitempty"`
	Files    []dataset.FileStats `json:"files,omitempty"`
	// Inferred says which types were not given, and what they were taken for.
	Inferred *dataset.Inference `json:"inferred,omitempty"`
}

// ColumnReport is what one column has.
type ColumnReport struct {
	Name     string      `json:"name"`
	Type     column.Type `json:"type"`
	Nulls    uint64      `json:"nulls"`
	Bytes    uint64      `json:"bytes"`
	Encoding string      `json:"encoding"` // plain, dictionary or, in some parts the one and in some the other, mixed
	// Min and Max are the least and the greatest value, of integers, floats, dates and times; decimals have none, nor columns with a NaN.
	Min string `json:"min,omitempty"`
	Max string `json:"max,omitempty"`
}

func (r *ColumnsReport) countParts(parts []cluster.Part) {
	r.Parts += len(parts)
	for _, p := range parts {
		r.Chunks += int(p.Chunks)
		r.PartRows += p.Rows
	}
}

func (r *ColumnsReport) ofColumns(s column.Schema, stats []part.Stats, files []dataset.FileStats, inferred *dataset.Inference) {
	r.Files, r.Inferred = files, inferred
	for i, c := range s {
		if i >= len(stats) {
			return
		}
		out := ColumnReport{Name: c.Name, Type: c.Type, Nulls: stats[i].Nulls, Bytes: stats[i].Bytes, Encoding: stats[i].Encoding}
		if stats[i].Bounded {
			out.Min, out.Max = boundText(c.Type, stats[i].Least), boundText(c.Type, stats[i].Most)
		}
		r.Columns = append(r.Columns, out)
	}
}

// unmet refuses a column that was given a type and that no row has: its name is misspelt. What is added to a dataset has its names.
func (l *loading) unmet(columns column.Schema, names []string) error {
	if len(names) == 0 || l.base != nil {
		return nil
	}
	met := slices.DeleteFunc(columns.Names(), func(name string) bool { return slices.Contains(names, name) })
	return fmt.Errorf("%w: a type is given for %q, and no row of %s has such a member; %s", dataset.ErrInput, names[0], l.filesText(), schema.Suggest(names[0], met))
}

// filesText names the files that are loaded.
func (l *loading) filesText() string {
	var names []string
	for _, in := range l.spec.Inputs {
		names = append(names, in.Name())
	}
	for _, at := range l.spec.At {
		names = append(names, at.Node+":"+at.Path)
	}
	if len(names) > 3 {
		names = append(names[:2], fmt.Sprintf("%d more", len(names)-2))
	}
	return strings.Join(names, ", ")
}

// unmetAnywhere are the columns that no row of any node's file has.
func (l *loading) unmetAnywhere() (out []string) {
	first := true
	for _, n := range l.nodes {
		switch {
		case n.file.Rows == 0:
		case first:
			out, first = slices.Clone(n.file.Unmet), false
		default:
			out = slices.DeleteFunc(out, func(name string) bool { return !slices.Contains(n.file.Unmet, name) })
		}
	}
	return out
}

// boundText writes a bound as the column's values are written.
func boundText(t column.Type, bits uint64) string {
	b := part.NewBuilder(t, 1)
	b.Bound(bits)
	a := b.Finish()
	defer a.Release()
	return batch.Text(t, a, 0)
}
