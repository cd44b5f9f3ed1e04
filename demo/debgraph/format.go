package debgraph

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The file: a header of headerBytes, then a raw-deflate body.
//
//	 0  magic     8 bytes
//	 8  version   u32
//	12  zero      u32
//	16  raw       u64, bytes of the body once inflated
//	24  body      u64, bytes of the body in the file
//	32  checksum  SHA-256 of bytes 0..31 and the body
//
// The inflated body, all integers as unsigned varints unless said otherwise:
// length and JSON of Meta; vertices; edges; per vertex the bytes its name
// shares with the one before, the length of the rest, the rest; per vertex its
// degree; per vertex its row, the first target as it is and then differences to the target before.
const (
	magic       = "WHRYGRPH"
	version     = 1
	headerBytes = 64

	// maxRawBytes bounds the inflated body; the archive takes 1.6 MB.
	maxRawBytes  = 1 << 30
	maxMetaBytes = 1 << 20
)

// ErrFormat says that bytes are no graph file, or a damaged one.
var ErrFormat = errors.New("debgraph: bad graph file")

//go:embed bookworm.graph
var bookworm []byte

// Load decodes the graph that is built into the program.
func Load() (*Graph, error) { return Decode(bookworm) }

// Encode gives the graph as a file. The same graph always gives the same bytes.
func Encode(g *Graph) ([]byte, error) {
	meta, err := json.Marshal(&g.Meta)
	if err != nil {
		return nil, fmt.Errorf("debgraph: encoding where the graph is from: %w", err)
	}
	raw := binary.AppendUvarint(nil, uint64(len(meta)))
	raw = append(raw, meta...)
	raw = binary.AppendUvarint(raw, uint64(g.Len()))
	raw = binary.AppendUvarint(raw, uint64(g.Edges()))
	prev := ""
	for _, name := range g.Names {
		k := sharedPrefix(prev, name)
		raw = binary.AppendUvarint(raw, uint64(k))
		raw = binary.AppendUvarint(raw, uint64(len(name)-k))
		raw = append(raw, name[k:]...)
		prev = name
	}
	for v := range g.Names {
		raw = binary.AppendUvarint(raw, uint64(g.Fwd.Degree(uint32(v))))
	}
	for v := range g.Names {
		last := uint32(0)
		for _, d := range g.Fwd.Row(uint32(v)) {
			raw = binary.AppendUvarint(raw, uint64(d-last))
			last = d
		}
	}
	if len(raw) > maxRawBytes {
		return nil, fmt.Errorf("%w: its file would hold %d bytes, the limit is %d", ErrTooLarge, len(raw), maxRawBytes)
	}
	var out bytes.Buffer
	out.Write(make([]byte, headerBytes))
	w, err := flate.NewWriter(&out, flate.BestCompression)
	if err != nil {
		return nil, fmt.Errorf("debgraph: %w", err)
	}
	w.Write(raw) // a bytes.Buffer takes everything; Close reports what is left
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("debgraph: compressing: %w", err)
	}
	file := out.Bytes()
	copy(file, magic)
	binary.LittleEndian.PutUint32(file[8:], version)
	binary.LittleEndian.PutUint64(file[16:], uint64(len(raw)))
	binary.LittleEndian.PutUint64(file[24:], uint64(len(file)-headerBytes))
	sum := checksum(file)
	copy(file[32:], sum[:])
	return file, nil
}

func checksum(file []byte) [sha256.Size]byte {
	h := sha256.New()
	h.Write(file[:32])
	h.Write(file[headerBytes:])
	return [sha256.Size]byte(h.Sum(nil))
}

func sharedPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// Decode reads a graph file. It accepts exactly what Encode writes, as far as
// the content goes: names strictly ascending, rows strictly ascending and in range, nothing left over.
func Decode(file []byte) (*Graph, error) {
	raw, err := openFile(file)
	if err != nil {
		return nil, err
	}
	d := decoder{rest: raw}
	g := d.graph()
	if d.err == nil && len(d.rest) != 0 {
		d.fail("%d bytes are left over", len(d.rest))
	}
	if d.err != nil {
		return nil, d.err
	}
	g.Rev = transpose(&g.Fwd)
	return g, nil
}

// openFile checks the header and inflates the body.
func openFile(file []byte) ([]byte, error) {
	if len(file) < headerBytes || string(file[:8]) != magic {
		return nil, fmt.Errorf("%w: it does not start with %q and a header of %d bytes", ErrFormat, magic, headerBytes)
	}
	if v, zero := binary.LittleEndian.Uint32(file[8:]), binary.LittleEndian.Uint32(file[12:]); v != version || zero != 0 {
		return nil, fmt.Errorf("%w: version %d (flags %#x), this program reads version %d", ErrFormat, v, zero, version)
	}
	rawBytes, body := binary.LittleEndian.Uint64(file[16:]), binary.LittleEndian.Uint64(file[24:])
	if body != uint64(len(file)-headerBytes) {
		return nil, fmt.Errorf("%w: the header promises a body of %d bytes, there are %d", ErrFormat, body, len(file)-headerBytes)
	}
	if rawBytes > maxRawBytes {
		return nil, fmt.Errorf("%w: the file inflates to %d bytes, the limit is %d", ErrTooLarge, rawBytes, maxRawBytes)
	}
	if sum := checksum(file); string(sum[:]) != string(file[32:headerBytes]) {
		return nil, fmt.Errorf("%w: the checksum does not match: the file is damaged", ErrFormat)
	}
	// The buffer grows with what is really there, not with what is promised.
	var raw bytes.Buffer
	in := bytes.NewReader(file[headerBytes:])
	n, err := io.Copy(&raw, io.LimitReader(flate.NewReader(in), int64(rawBytes)+1))
	if err != nil {
		return nil, fmt.Errorf("%w: inflating: %w", ErrFormat, err)
	}
	if uint64(n) != rawBytes || in.Len() != 0 {
		return nil, fmt.Errorf("%w: the body does not inflate to the promised %d bytes", ErrFormat, rawBytes)
	}
	return raw.Bytes(), nil
}

// decoder reads varints and keeps the first error; after one, it yields zeros.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...)
	}
	d.rest = nil
}

// uint reads a number of at most limit. Only its shortest form is accepted.
func (d *decoder) uint(what string, limit uint64) uint64 {
	x, n := binary.Uvarint(d.rest)
	switch {
	case d.err != nil:
		return 0
	case n <= 0 || n > 1 && d.rest[n-1] == 0:
		d.fail("the number for %s is cut short or malformed", what)
		return 0
	case x > limit:
		d.fail("%s is %d, at most %d is possible", what, x, limit)
		return 0
	}
	d.rest = d.rest[n:]
	return x
}

func (d *decoder) graph() *Graph {
	g := new(Graph)
	metaBytes := d.uint("the length of the description", min(maxMetaBytes, uint64(len(d.rest))))
	if d.err != nil {
		return g
	}
	if metaBytes > uint64(len(d.rest)) {
		d.fail("the description is cut short")
		return g
	}
	dec := json.NewDecoder(bytes.NewReader(d.rest[:metaBytes]))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&g.Meta); err != nil {
		d.fail("the description: %v", err)
		return g
	}
	d.rest = d.rest[metaBytes:]
	// A name takes two bytes at least, a target one: what is left bounds both counts.
	n := d.uint("the number of vertices", min(MaxVertices, uint64(len(d.rest))/2))
	m := d.uint("the number of edges", min(MaxEdges, uint64(len(d.rest))))
	g.Names = d.names(n)
	g.Fwd = d.rows(n, m)
	return g
}

func (d *decoder) names(n uint64) []string {
	names := make([]string, 0, n)
	prev := ""
	for range n {
		k := d.uint("a name's shared length", uint64(len(prev)))
		l := d.uint("a name's length", min(MaxNameBytes-k, uint64(len(d.rest))))
		if d.err != nil {
			return nil
		}
		if l > uint64(len(d.rest)) {
			d.fail("a name is cut short")
			return nil
		}
		var b strings.Builder
		b.WriteString(prev[:k])
		b.Write(d.rest[:l])
		name := b.String()
		d.rest = d.rest[l:]
		if name <= prev || sharedPrefix(prev, name) != int(k) {
			d.fail("the names are not in order after %q", prev)
			return nil
		}
		names = append(names, name)
		prev = name
	}
	return names
}

func (d *decoder) rows(n, m uint64) CSR {
	if d.err != nil {
		return CSR{}
	}
	c := CSR{Off: make([]uint64, n+1), Dst: make([]uint32, 0, m)}
	for v := range n {
		c.Off[v+1] = c.Off[v] + d.uint("a vertex's degree", m-c.Off[v])
	}
	if c.Off[n] != m {
		d.fail("the degrees sum up to %d, not to %d edges", c.Off[n], m)
	}
	for v := range n {
		last, first := uint64(0), true
		for range c.Off[v+1] - c.Off[v] {
			if d.err != nil {
				return CSR{}
			}
			delta := d.uint("a target", n-1-last)
			if last += delta; !first && delta == 0 || last == v {
				d.fail("vertex %d names a target twice, or itself", v)
			}
			first = false
			c.Dst = append(c.Dst, uint32(last))
		}
	}
	return c
}
