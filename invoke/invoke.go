// Package invoke runs a function image on a dataset as a person asks for it:
// it encodes arguments by the image's schema, starts branches where the image
// says they start, and decodes and merges what they reply.
package invoke

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/schema"
)

// Request is one call.
type Request struct {
	Image *image.Image
	// Table is the dataset; nil runs the function on To with no data.
	Table *cluster.Table
	To    *fabric.Endpoint
	// Args are the parameters by name; Payload is the whole payload instead.
	Args    map[string]string
	Payload []byte
	// Element, if not nil, starts the function on that element only, whatever the image says.
	Element *uint32
	Options inject.Options
}

// Answer is what a call returned.
type Answer struct {
	Schema   *schema.Schema // nil: the result is raw bytes
	Parts    []schema.Rows  // of a result with a schema, merged if it asks for that
	Raw      []byte         // of one without
	Branches uint32
	// PartBytes is what the elements sent as results.
	PartBytes int
}

// ErrRequest says that a call does not fit the function or the dataset.
var ErrRequest = errors.New("invoke: bad call")

// Payload encodes the call's parameters.
func (r *Request) payload() ([]byte, error) {
	m := r.Image.Manifest()
	switch {
	case m.Params == nil && len(r.Args) > 0:
		return nil, fmt.Errorf("%w: %s takes raw bytes, not arguments: give --in FILE", ErrRequest, m.Name)
	case m.Params == nil:
		return r.Payload, nil
	case r.Payload != nil && len(r.Args) > 0:
		return nil, fmt.Errorf("%w: both a payload and arguments", ErrRequest)
	case r.Payload != nil:
		return r.Payload, nil
	}
	var data *schema.Schema
	if r.Table != nil && r.Table.Kind == cluster.Records {
		data = &r.Table.Schema
	}
	b, err := m.Params.EncodeArgs(r.Args, data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrRequest, m.Name, err)
	}
	return b, nil
}

// roots says where the call starts.
func (r *Request) roots(payload []byte) ([]inject.Root, error) {
	m := r.Image.Manifest()
	switch {
	case r.Table == nil && r.To == nil:
		return nil, fmt.Errorf("%w: neither a dataset (--on NAME) nor a node (--node NAME) to run %s on", ErrRequest, m.Name)
	case r.Table == nil:
		return []inject.Root{{To: r.To, Payload: payload}}, nil
	case r.Element != nil:
		return []inject.Root{{Element: *r.Element, Payload: payload}}, nil
	}
	switch m.Start {
	case image.StartFirst:
		return []inject.Root{{Element: 0, Payload: payload}}, nil
	case image.StartOwner:
		row, err := strconv.ParseUint(r.Args[m.OwnerParam], 0, 64)
		if err != nil {
			return nil, fmt.Errorf("%w: %s starts where the row given by %q lies: %q is no row", ErrRequest, m.Name, m.OwnerParam, r.Args[m.OwnerParam])
		}
		e, _, ok := r.Table.Owner(row)
		if !ok {
			return nil, fmt.Errorf("%w: row %d of %s: it has %d", ErrRequest, row, r.Table.Name, r.Table.Rows)
		}
		return []inject.Root{{Element: e, Payload: payload}}, nil
	}
	var roots []inject.Root
	for i := range r.Table.Shards {
		roots = append(roots, inject.Root{Element: uint32(i), Payload: payload})
	}
	return roots, nil
}

// Run makes the call and waits for its answer; if the context ends first the
// invocation is canceled everywhere.
func Run(ctx context.Context, rt *inject.Runtime, r Request) (*Answer, error) {
	payload, err := r.payload()
	if err != nil {
		return nil, err
	}
	roots, err := r.roots(payload)
	if err != nil {
		return nil, err
	}
	f, err := rt.Prepare(r.Image, r.Table)
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
	res, err := fut.Wait(ctx)
	if err != nil {
		fut.Cancel()
		return nil, err
	}
	return decode(r.Image, res)
}

// decode reads a result by the image's word.
func decode(img *image.Image, res *inject.Result) (*Answer, error) {
	m := img.Manifest()
	a := &Answer{Schema: m.Result, Branches: res.Branches}
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
	if m.Result == nil || !m.Result.Merges() {
		return a, nil
	}
	merged, err := schema.Merge(m.Result, a.Parts...)
	if err != nil {
		return nil, fmt.Errorf("merge the results of %s: %w", m.Name, err)
	}
	a.Parts = []schema.Rows{merged}
	return a, nil
}

// Write writes the answer in a format; raw bytes have only one.
func (a *Answer) Write(w io.Writer, format schema.Format) error {
	if a.Schema == nil {
		_, err := w.Write(a.Raw)
		return err
	}
	sw, err := schema.NewWriter(w, format, a.Schema)
	if err != nil {
		return err
	}
	for _, p := range a.Parts {
		if err := sw.Write(p); err != nil {
			return err
		}
	}
	return sw.Close()
}
