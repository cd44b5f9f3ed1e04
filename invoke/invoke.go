// Package invoke runs a function with textual arguments and merges the answers:
// it encodes arguments by the image's schema, starts branches where the image
// says they start, and decodes what they reply. On a graph whose vertices have
// names, arguments and answers may use them.
package invoke

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/schema"
)

// Request is one call. Image, and Table or To, must be given; the zero value of any
// other field is its usual value.
type Request struct {
	Image *image.Image
	// Table is the dataset; nil runs the function on To with no data.
	Table *cluster.Table
	To    *fabric.Endpoint
	// Args are the parameters by name; Payload is the whole payload instead. Of a graph that was loaded
	// with names, an argument that is a vertex is a name; #12 is the vertex with the number 12.
	Args    map[string]string
	Payload []byte
	// Element, if not nil, starts the function on that element only, whatever the image says.
	Element *uint32
	Options inject.Options
	// Form is the only one of the image's code that may run; forms.Auto leaves it to each element.
	Form forms.Wish
	// Started, if not nil, gets the invocation once it is under way.
	Started func(*inject.Future)
}

// Answer is what a call returned.
type Answer struct {
	Schema   *schema.Schema // nil: the result is raw bytes
	Parts    []schema.Rows  // of a result with a schema, merged if it asks for that
	Raw      []byte         // of one without
	Found    *Found         // of a query (Request.IsQuery); then it is all that there is
	Branches uint32
	// PartBytes is what the elements sent as results.
	PartBytes int
}

// ErrRequest says that a call does not fit the function or the dataset.
var ErrRequest = errors.New("invoke: bad call")

// Validate reports what a request must have and has not. What does not fit together is found by Run.
func (r *Request) Validate() error {
	switch {
	case r.Image == nil || r.Image.Size() == 0:
		return fmt.Errorf("%w: no Image: xrdma.Lookup finds a ready function, image.Parse reads a file's", ErrRequest)
	case r.Table == nil && r.To == nil:
		return fmt.Errorf("%w: neither a dataset (--on NAME) nor a node (--node NAME) to run %s on", ErrRequest, r.Image.Name())
	}
	return nil
}

// payload encodes the call's parameters.
func (r *Request) payload() ([]byte, error) {
	m := r.Image.Call()
	if err := r.checkKind(); err != nil {
		return nil, err
	}
	if err := r.checkWorkers(); err != nil {
		return nil, err
	}
	switch {
	case m.Params == nil && len(r.Args) > 0:
		return nil, fmt.Errorf("%w: %s takes raw bytes, not arguments: give --in FILE", ErrRequest, m.Name)
	case r.Payload != nil && len(r.Args) > 0:
		return nil, fmt.Errorf("%w: both a payload and arguments", ErrRequest)
	case m.Params == nil:
		return r.Payload, fits(len(r.Payload))
	case r.Payload != nil:
		if err := r.checkRecord(r.Payload); err != nil {
			return nil, err
		}
		return r.Payload, fits(len(r.Payload))
	}
	if err := r.checkVertices(m.Params.Schema()); err != nil {
		return nil, err
	}
	if err := r.tellWorkers(m); err != nil {
		return nil, err
	}
	b, err := r.encode(m.Params)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrRequest, m.Name, err)
	}
	if err := r.checkRecord(b); err != nil {
		return nil, err
	}
	return b, fits(len(b))
}

// encode makes the payload of the arguments, of which some may name columns.
func (r *Request) encode(params *schema.Checked) ([]byte, error) {
	switch {
	case r.Table != nil && r.Table.Kind == cluster.Records:
		return params.EncodeArgs(r.Args, &r.Table.Schema)
	case r.Table != nil && r.Table.Kind == cluster.Columns:
		places := make([]schema.Place, len(r.Table.Columns))
		for i, c := range r.Table.Columns {
			places[i] = schema.Place{Name: c.Name, Type: stored(c.Type), At: uint32(i)}
		}
		return params.EncodeColumnArgs(r.Args, places)
	}
	return params.EncodeArgs(r.Args, nil)
}

// stored is how a column's values lie, for functions in C; "" if they are no single values.
func stored(t column.Type) schema.Type {
	switch t.ID {
	case column.UTF8, column.Binary:
		return schema.Str
	case column.Date32, column.Time32:
		return schema.I32
	case column.Time64, column.Timestamp, column.Duration:
		return schema.I64
	}
	switch text := schema.Type(t.String()); {
	case t.Nested():
		return ""
	case t.ID == column.Bool || t.ID <= column.F64:
		return text
	}
	return schema.Type(fmt.Sprintf("bytes%d", t.Size()))
}

// checkRecord finds a payload that is shorter than the function's parameters, and parameters that are rows which the dataset
// has not. The function would end with no more than a number, and on some of the elements only.
func (r *Request) checkRecord(payload []byte) error {
	m := r.Image.Call()
	l, fields := m.Params.Layout(), m.Params.Schema().Fields
	if len(payload) < int(l.Size) {
		return fmt.Errorf("%w: %s: the payload has %d bytes, its parameters (%.200s) take %d", ErrRequest, m.Name, len(payload), m.Params.Schema(), l.Size)
	}
	for i := range fields {
		f := &fields[i]
		starts := m.Start == image.StartOwner && f.Name == m.OwnerParam
		if !f.IsRow() && (!starts || r.Table == nil) {
			continue
		}
		if r.Table == nil {
			return fmt.Errorf("%w: %s: %s is the number of a row, and there is no dataset that has rows: run it on one (--on NAME)", ErrRequest, m.Name, f.Name)
		}
		text := string(l.Codecs[i].AppendText(nil, payload[l.Offsets[i]:][:l.Codecs[i].Size()]))
		if row, err := strconv.ParseUint(text, 10, 64); err != nil || row >= r.Table.Rows { // -1 is no row either
			return fmt.Errorf("%w: %s: %w", ErrRequest, m.Name, r.noRow(f.Name, text))
		}
	}
	return nil
}

// noRow says that a parameter names a row which the dataset has not.
func (r *Request) noRow(param, text string) error {
	what := "row"
	if r.Table.Kind == cluster.CSR {
		what = "vertex"
	}
	if r.Table.Rows == 0 {
		return fmt.Errorf("%s: there is no %s %s: %s has none at all", param, what, text, r.Table.Name)
	}
	return fmt.Errorf("%s: there is no %s %s: those of %s go from 0 to %d", param, what, text, r.Table.Name, r.Table.Rows-1)
}

// fits says whether a payload of so many bytes can travel.
func fits(bytes int) error {
	if bytes > travel.MaxDataBytes {
		return fmt.Errorf("%w: the payload has %d bytes, at most %d travel with a function: load it as a dataset (wherry mem load --format raw)", ErrRequest, bytes, travel.MaxDataBytes)
	}
	return nil
}

// VerticesParam is the parameter of type str that, on a graph, is a list of
// vertices, with commas or white space between: names if the vertices have
// names (then #12 is a number), else numbers.
const VerticesParam = "vertices"

// graphWindow is the first window of a function for graphs.
const graphWindow = "forward_offsets"

// checkKind finds a function on a dataset whose windows hold something else than
// it reads: it would take any bytes for what it expects. So it would on none.
func (r *Request) checkKind() error {
	m := r.Image.Call()
	reads := m.ReadsColumns()
	switch columns := r.Table != nil && r.Table.Kind == cluster.Columns; {
	case columns && m.ABI < 2: // which has all windows, and no calls for what is missing or text
		return fmt.Errorf("%w: %s is built for ABI version %d, which has rows of fixed width and graphs; %s", ErrRequest, m.Name, m.ABI, r.holdsColumns())
	case columns && !reads && (m.Rows != nil || len(m.Windows) > 0) && m.Name != "query":
		return fmt.Errorf("%w: %s reads rows of C structs or graphs; %s", ErrRequest, m.Name, r.holdsColumns())
	case reads && r.Table == nil:
		return fmt.Errorf("%w: %s reads columns, and a node alone has no data: run it on a dataset (--on NAME)", ErrRequest, m.Name)
	case reads && !columns:
		return fmt.Errorf("%w: %s reads columns; %s is of kind %v: load a csv (without --packed), ndjson, parquet or arrow file", ErrRequest, m.Name, r.Table.Name, r.Table.Kind)
	}
	if m.Rows != nil {
		if err := r.checkRows(m.Rows); err != nil {
			return err
		}
	}
	if len(m.Windows) == 0 {
		return nil
	}
	want := m.Windows[0].Type
	if r.Table == nil {
		needs := "a graph"
		if want != "" {
			needs = fmt.Sprintf("rows of one %s each", want)
		} else if m.Windows[0].Name != graphWindow {
			return nil
		}
		return fmt.Errorf("%w: %s needs %s, and a node alone has no data: run it on a dataset (--on NAME)", ErrRequest, m.Name, needs)
	}
	graph := r.Table.Kind == cluster.CSR
	switch {
	case m.Windows[0].Name == graphWindow && !graph:
		return fmt.Errorf("%w: %s needs a graph; %s holds records (wherry mem load --format edges makes a graph)", ErrRequest, m.Name, r.Table.Name)
	case graph && len(m.Windows) > cluster.FwdWeightsWindow && !r.Table.Weighted():
		return fmt.Errorf("%w: %s needs a graph whose edges have weights; those of %s have none (wherry mem load --format edges --weights)", ErrRequest, m.Name, r.Table.Name)
	case want == "":
		return nil
	case graph:
		return fmt.Errorf("%w: %s needs rows of one %s each; %s is a graph (wherry mem load --schema row:%[3]s makes such rows)", ErrRequest, m.Name, want, r.Table.Name)
	case len(r.Table.Schema.Fields) != 1 || !alike(want, r.Table.Schema.Fields[0].Type):
		return fmt.Errorf("%w: %s needs rows of one %s each; the rows of %s are %.200s: load what it needs as a dataset of its own (wherry mem load --schema row:%[3]s)",
			ErrRequest, m.Name, want, r.Table.Name, &r.Table.Schema)
	}
	return nil
}

// holdsColumns says that of the dataset, and the ways out.
func (r *Request) holdsColumns() string {
	return r.Table.Name + " holds columns: ask it with wherry query, write the function with wherry_columns.h (sdk/README.md), or, if no row has text, load the rows as such: --packed, or a --schema with one field"
}

// checkRows finds a dataset whose rows are not those that the function reads.
func (r *Request) checkRows(want *schema.Schema) error {
	name := r.Image.Name()
	l, err := want.Layout()
	switch {
	case err == nil && l.HasStr:
		return fmt.Errorf("%w: %s reads rows of C structs with text (%s), and rows with text are columns now: write it with wherry_columns.h (sdk/README.md)", ErrRequest, name, want)
	case r.Table == nil:
		return fmt.Errorf("%w: %s needs rows of %s, and a node alone has no data: run it on a dataset (--on NAME)", ErrRequest, name, want)
	case r.Table.Kind == cluster.CSR:
		return fmt.Errorf("%w: %s needs rows of %s; %s is a graph", ErrRequest, name, want, r.Table.Name)
	case !slices.EqualFunc(want.Fields, r.Table.Schema.Fields, func(a, b schema.Field) bool { return a.Name == b.Name && a.Type == b.Type }):
		has := "are " + r.Table.Schema.String()
		if len(r.Table.Schema.Fields) == 0 {
			has = "have no fields"
		}
		return fmt.Errorf("%w: %s needs rows of %s; those of %s %s: load what it needs as a dataset of its own (wherry mem load --packed --schema %[3]s)",
			ErrRequest, name, want, r.Table.Name, has)
	}
	return nil
}

// alike says whether a function that reads values of one type may read those of
// another: integers of a size may, whatever their sign.
func alike(a, b schema.Type) bool {
	return a == b || a.IsInteger() && b.IsInteger() && a.Size() == b.Size()
}

// checkVertices finds vertices that a graph has not. A function would pass over
// them, because each element looks only for its own.
func (r *Request) checkVertices(params *schema.Schema) error {
	i := params.Index(VerticesParam)
	text, given := r.Args[VerticesParam]
	if i < 0 || params.Fields[i].Type != schema.Str || !given || r.Table == nil || r.Table.Kind != cluster.CSR {
		return nil
	}
	words := strings.FieldsFunc(text, func(c rune) bool { return c == ',' || unicode.IsSpace(c) })
	if len(words) == 0 {
		return fmt.Errorf("%w: %s names no vertex; it is a list of numbers, as in 12,34", ErrRequest, VerticesParam)
	}
	for _, w := range words {
		v, err := strconv.ParseUint(w, 10, 64)
		switch {
		case err != nil && r.Table.Rows > 0:
			return fmt.Errorf("%w: %s: %.40q is not a vertex number (0 to %d), and the vertices of %s have no names (wherry mem load --names keeps them)", ErrRequest, VerticesParam, w, r.Table.Rows-1, r.Table.Name)
		case err != nil || v >= r.Table.Rows:
			return fmt.Errorf("%w: %s: %w", ErrRequest, r.Image.Name(), r.noRow(VerticesParam, w))
		}
	}
	return nil
}

// roots says where the call starts.
func (r *Request) roots(payload []byte) ([]inject.Root, error) {
	m := r.Image.Call()
	switch {
	case r.Table == nil:
		return []inject.Root{{To: r.To, Payload: payload}}, nil
	case r.Element != nil:
		return []inject.Root{{Element: *r.Element, Payload: payload}}, nil
	}
	switch m.Start {
	case image.StartFirst:
		return []inject.Root{{Element: 0, Payload: payload}}, nil
	case image.StartOwner:
		row, err := ownerRow(m, payload)
		if err != nil {
			return nil, err
		}
		e, _, ok := r.Table.Owner(row)
		if !ok {
			return nil, fmt.Errorf("%w: %s: %w", ErrRequest, m.Name, r.noRow(m.OwnerParam, strconv.FormatUint(row, 10)))
		}
		return []inject.Root{{Element: e, Payload: payload}}, nil
	}
	return r.every(payload), nil
}

// every starts the call on all elements, as each of their workers.
func (r *Request) every(payload []byte) []inject.Root {
	workers := max(int(r.Options.Workers), 1)
	roots := make([]inject.Root, len(r.Table.Shards)*workers)
	for i := range roots {
		roots[i] = inject.Root{Element: uint32(i / workers), Worker: uint8(i % workers), Payload: payload}
	}
	return roots
}

// ownerRow reads where a function starts from its payload, which checkRecord has seen.
func ownerRow(m *image.Call, payload []byte) (uint64, error) {
	l := m.Params.Layout()
	i := m.Params.Schema().Index(m.OwnerParam)
	text := l.Codecs[i].AppendText(nil, payload[l.Offsets[i]:][:l.Codecs[i].Size()])
	return strconv.ParseUint(string(text), 10, 64)
}

// Run makes the call and waits for its answer; if the context ends first the
// invocation is canceled everywhere.
func Run(ctx context.Context, rt *inject.Runtime, r Request) (*Answer, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if rt == nil {
		return nil, fmt.Errorf("%w: no runtime to start %s: client.Runtime is one", ErrRequest, r.Image.Name())
	}
	if r.IsQuery() {
		return r.ask(ctx, rt)
	}
	if err := r.resolve(ctx, rt); err != nil {
		return nil, err
	}
	payload, err := r.payload()
	if err != nil {
		return nil, err
	}
	roots, err := r.roots(payload)
	if err != nil {
		return nil, err
	}
	if err := r.checkRights(); err != nil {
		return nil, err
	}
	f, err := rt.PrepareAs(r.Image, r.Table, r.Form)
	if errors.Is(err, inject.ErrRanges) {
		err = fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fut, err := f.Start(ctx, roots, r.Options)
	if err != nil {
		return nil, err
	}
	if r.Started != nil {
		r.Started(fut)
	}
	res, err := fut.Wait(ctx)
	if err != nil {
		fut.Cancel()
		return nil, err
	}
	return decode(r.Image, res)
}

// decode reads a result by the image's word.
func decode(img *image.Image, res *inject.Result) (*Answer, error) {
	m := img.Call()
	a := &Answer{Schema: m.Manifest.Result, Branches: res.Branches}
	for _, p := range res.Pieces {
		a.PartBytes += len(p.Data)
		if m.Result == nil {
			a.Raw = append(a.Raw, p.Data...)
			continue
		}
		if len(p.Data) == 0 {
			continue
		}
		rows, err := m.DecodeResult(p.Data)
		if err != nil {
			return nil, fmt.Errorf("branch %x of %s, part %d: %w", p.Branch, m.Name, p.Index, err)
		}
		a.Parts = append(a.Parts, rows)
	}
	if m.Result == nil || !a.Schema.Merges() {
		return a, nil
	}
	merged, err := m.Result.Merge(a.Parts...)
	if err != nil {
		return nil, fmt.Errorf("merge the results of %s: %w", m.Name, err)
	}
	a.Parts = []schema.Rows{merged}
	return a, nil
}

// CheckFormat says whether what a function returns can be written in a format:
// bytes without a schema are raw, or JSON's {"raw": base64}.
func CheckFormat(img *image.Image, format batch.Format) error {
	if img == nil {
		return fmt.Errorf("%w: no Image", ErrRequest)
	}
	if m := img.Call(); m.Result == nil && format != batch.Raw && format != batch.JSON {
		return fmt.Errorf("%w: %s returns raw bytes, which have no columns to write as %s: use raw, or json for base64", ErrRequest, m.Name, format)
	}
	return nil
}

// Write writes the answer in a format; see CheckFormat. In the text formats each byte of text that is not UTF-8 is \x and two hexadecimal digits. In
// batch.Raw a function's rows are its result parts, one after the other.
func (a *Answer) Write(w io.Writer, format batch.Format) error {
	switch {
	case a.Found != nil && format == batch.Raw:
		return fmt.Errorf("%w: columns have no raw bytes: use arrow, parquet, csv, json, ndjson or table", ErrRequest)
	case a.Found == nil && a.Schema == nil:
		return a.writeRaw(w, format)
	case format != batch.Raw:
		return a.writeBatches(w, format)
	}
	for _, p := range a.Parts {
		if _, err := w.Write(p.Part()); err != nil {
			return err
		}
	}
	return nil
}

// writeRaw writes bytes without a schema.
func (a *Answer) writeRaw(w io.Writer, format batch.Format) error {
	switch format {
	case batch.Raw:
		_, err := w.Write(a.Raw)
		return err
	case batch.JSON:
		return json.NewEncoder(w).Encode(map[string][]byte{"raw": a.Raw})
	}
	return fmt.Errorf("%w: raw bytes have no columns to write as %s", ErrRequest, format)
}
