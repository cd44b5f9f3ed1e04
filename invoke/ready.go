package invoke

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/internal/shell"
	"github.com/wherry-fabric/wherry/query"
	"github.com/wherry-fabric/wherry/schema"
)

// The ready functions count, countby, sum, countbyif and sumif are names of queries: the function query travels in their place.

// plans make the query of each, from the column that it looks at.
var plans = map[string]func(col string) query.Query{
	"count": func(string) query.Query { return query.Query{Agg: []string{"matched=count()"}} },
	"countby": func(col string) query.Query {
		return query.Query{Group: []string{"key=" + col}, Agg: []string{"n=count()"}, Order: []string{"key"}}
	},
	"sum": func(col string) query.Query {
		return query.Query{Agg: []string{"n=count(" + col + ")", "sum=sum(" + col + ")", "min=min(" + col + ")", "max=max(" + col + ")"}}
	},
}

// readyImage is the image of a ready function: the runtime's, once the function was prepared there, else a new one. To parse that of query
// takes as long as a tenth of a short query.
func readyImage(rt *inject.Runtime, name string) (*image.Image, error) {
	id, err := xrdma.ID(name)
	if err != nil {
		return nil, err
	}
	if img := rt.Image(id); img != nil {
		return img, nil
	}
	return xrdma.Lookup(name)
}

// IsQuery reports whether the request is a query by another name: one of these functions, and not one of the same name.
func (r *Request) IsQuery() bool {
	if r.Image == nil || plans[strings.TrimSuffix(r.Image.Name(), "if")] == nil {
		return false
	}
	id, err := xrdma.ID(r.Image.Name())
	return err == nil && id == r.Image.ID()
}

// Query is the query that a ready function stands for (IsQuery).
func (r *Request) Query() (query.Query, error) {
	name := r.Image.Name()
	if r.Table == nil {
		return query.Query{}, fmt.Errorf("%w: %s is a query, and a node alone has no data: run it on a dataset (--on NAME)", ErrRequest, name)
	}
	if _, err := readable(r.Table); err != nil {
		return query.Query{}, fmt.Errorf("%s: %w", name, err)
	}
	if r.Payload != nil {
		return query.Query{}, fmt.Errorf("%w: %s takes arguments (--arg column=NAME), not a payload", ErrRequest, name)
	}
	args, err := r.Image.Call().Params.Schema().FillArgs(r.Args)
	if err != nil {
		return query.Query{}, fmt.Errorf("%w: %s: %w", ErrRequest, name, err)
	}
	col, err := r.column("column", args["column"])
	if err != nil {
		return query.Query{}, err
	}
	q := plans[strings.TrimSuffix(name, "if")](col)
	where := "column"
	if _, is := args["where"]; is {
		where = "where"
	}
	if _, is := args["op"]; is {
		if q.Where, err = r.condition(where, args[where], args["op"], args["value"]); err != nil {
			return query.Query{}, err
		}
	}
	return q, nil
}

// column is the expression that names a column.
func (r *Request) column(param, name string) (string, error) {
	if columns, _ := r.Table.Readable(); columns.Index(name) < 0 {
		return "", fmt.Errorf("%w: %s: %w: parameter %s: the dataset has no column %.80q; %s",
			ErrRequest, r.Image.Name(), schema.ErrArgument, param, name, schema.Suggest(name, columns.Names()))
	}
	return fmt.Sprintf("col(%q)", name), nil
}

// signs are the operators of conditions, by what the functions call them.
var signs = map[string]string{"eq": "==", "=": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

// condition is what op and value say about a column.
func (r *Request) condition(param, name, op, value string) (string, error) {
	col, err := r.column(param, name)
	if err != nil || op == "any" || op == "" {
		return "", err
	}
	switch op {
	case "prefix", "^":
		return fmt.Sprintf("hasprefix(%s, %s)", col, strconv.Quote(value)), nil
	case "contains", "~":
		return fmt.Sprintf("contains(%s, %s)", col, strconv.Quote(value)), nil
	}
	columns, _ := r.Table.Readable()
	t := columns[columns.Index(name)].Type
	text := strconv.Quote(value)
	switch {
	case t.ID == column.Bool && (value == "true" || value == "1"):
		text = "true"
	case t.ID == column.Bool && (value == "false" || value == "0"):
		text = "false"
	case t.ID == column.Bool || t.ID <= column.F64 || t.ID == column.Decimal128:
		if _, err := strconv.ParseFloat(value, 64); err != nil || strings.Trim(value, "+-.0123456789eE") != "" {
			return "", fmt.Errorf("%w: %s: %w: parameter value: %.40q is no value of column %s, which is %v", ErrRequest, r.Image.Name(), schema.ErrArgument, value, name, t)
		}
		text = decimal(value)
	}
	sign := op
	if s, is := signs[op]; is {
		sign = s
	}
	return col + " " + sign + " " + text, nil
}

// decimal is a number without the plus and the zeros in front, which would make it another number in an expression: 010 is eight there, as in Go.
func decimal(value string) string {
	number := strings.TrimPrefix(value, "+")
	digits := strings.TrimPrefix(number, "-")
	sign := number[:len(number)-len(digits)]
	for len(digits) > 1 && digits[0] == '0' && '0' <= digits[1] && digits[1] <= '9' {
		digits = digits[1:]
	}
	return sign + digits
}

// flags are those of wherry query that ask the same, as a shell reads them.
func flags(q query.Query) (text string) {
	for _, f := range []struct{ name, value string }{
		{"where", q.Where}, {"group", strings.Join(q.Group, ", ")}, {"agg", strings.Join(q.Agg, ", ")}, {"order", strings.Join(q.Order, ", ")},
	} {
		if f.value != "" {
			text += " --" + f.name + " " + shell.Quote(f.value)
		}
	}
	return text
}

// ask has the query done that the function stands for, and gives its answer the function's columns.
func (r *Request) ask(ctx context.Context, rt *inject.Runtime) (*Answer, error) {
	q, err := r.Query()
	if err != nil {
		return nil, err
	}
	if r.Element != nil {
		return nil, fmt.Errorf("%w: %s asks all elements: leave Element out", ErrRequest, r.Image.Name())
	}
	q.Workers = int(r.Options.Workers)
	found, err := find(ctx, rt, Request{Table: r.Table, Options: r.Options, Form: r.Form, Started: r.Started}, q)
	if err != nil {
		return nil, fmt.Errorf("%s, which is wherry query%s: %w", r.Image.Name(), flags(q), err)
	}
	if r.Image.Name() == "count" {
		b := array.NewUint64Builder(memory.DefaultAllocator)
		defer b.Release()
		b.Append(r.Table.Rows)
		found.Columns = append(slices.Clone(found.Columns), column.Column{Name: "scanned", Type: column.Type{ID: column.U64}})
		found.Arrays = append(found.Arrays, arrow.Array(b.NewArray()))
	}
	return &Answer{Found: found, Branches: uint32(len(r.Table.Shards)), PartBytes: int(found.Explanation.BytesMoved)}, nil
}
