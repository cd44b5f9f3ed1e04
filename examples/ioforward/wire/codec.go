package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"github.com/wherry-fabric/wherry/rpc"
)

// ErrMessage says that bytes are not the message that they should be.
var ErrMessage = errors.New("ioforward: malformed message")

var le = binary.LittleEndian

// attrBytes is an Attr: four words of 64 bits and four of 32, and three times.
const attrBytes = 4*8 + 4*4 + 3*(8+4)

// entryBytes is an Entry without its name.
const entryBytes = 2 + 2 + attrBytes

// reader takes a message apart. After an error it yields zeros.
type reader struct {
	b   []byte
	err error
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) && r.err == nil {
		r.err = fmt.Errorf("%w: %d bytes more are needed, %d are there", ErrMessage, n, len(r.b))
	}
	if r.err != nil {
		return make([]byte, min(n, 8))
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) u8() uint8         { return r.take(1)[0] }
func (r *reader) u16() uint16       { return le.Uint16(r.take(2)) }
func (r *reader) u32() uint32       { return le.Uint32(r.take(4)) }
func (r *reader) u64() uint64       { return le.Uint64(r.take(8)) }
func (r *reader) mode() fs.FileMode { return fs.FileMode(r.u32()) }
func (r *reader) text(limit int) string {
	n := int(r.u16())
	if n > limit && r.err == nil {
		r.err = fmt.Errorf("%w: a text of %d bytes, at most %d", ErrMessage, n, limit)
	}
	if b := r.take(n); r.err == nil {
		return string(b)
	}
	return ""
}

func (r *reader) flag() bool {
	v := r.u8()
	if v > 1 && r.err == nil {
		r.err = fmt.Errorf("%w: a flag of %d", ErrMessage, v)
	}
	return v == 1
}

// end is the message's error: its own, or that it goes on where it should end.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		r.err = fmt.Errorf("%w: %d bytes after its end", ErrMessage, len(r.b))
	}
	return r.err
}

func appendTime(b []byte, t Time) []byte {
	return le.AppendUint32(le.AppendUint64(b, uint64(t.Sec)), t.Nsec)
}

func (r *reader) time() Time {
	t := Time{int64(r.u64()), r.u32()}
	if t.Nsec > maxNsec && r.err == nil {
		r.err = fmt.Errorf("%w: a time with %d ns", ErrMessage, t.Nsec)
	}
	return t
}

func appendText(b []byte, s string) []byte {
	return append(le.AppendUint16(b, uint16(len(s))), s...)
}

func appendFlag(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// checkPath refuses what would not fit; what a path means, the node judges.
func checkPath(paths ...string) error {
	for _, p := range paths {
		if len(p) > MaxPathBytes {
			return fmt.Errorf("%w: a path of %d bytes, at most %d", ErrMessage, len(p), MaxPathBytes)
		}
	}
	return nil
}

// codec makes an rpc.Codec of two functions.
type codec[T any] struct {
	put func(b []byte, v T) ([]byte, error)
	get func(r *reader) T
}

// Append implements rpc.Codec.
func (c codec[T]) Append(b []byte, v T) ([]byte, error) { return c.put(b, v) }

// Decode implements rpc.Codec.
func (c codec[T]) Decode(_ T, b []byte) (T, error) {
	r := reader{b: b}
	v := c.get(&r)
	return v, r.end()
}

func (a *Attr) append(b []byte) []byte {
	for _, v := range [...]uint64{a.Dev, a.Ino, uint64(a.Size), a.Blocks} {
		b = le.AppendUint64(b, v)
	}
	for _, v := range [...]uint32{uint32(a.Mode), a.Nlink, a.UID, a.GID} {
		b = le.AppendUint32(b, v)
	}
	for _, t := range [...]Time{a.Atime, a.Mtime, a.Ctime} {
		b = appendTime(b, t)
	}
	return b
}

func (r *reader) errno() uint16 {
	v := r.u16()
	if v > maxErrno && r.err == nil {
		r.err = fmt.Errorf("%w: error number %d", ErrMessage, v)
	}
	return v
}

func (r *reader) attr() Attr {
	a := Attr{Dev: r.u64(), Ino: r.u64(), Size: int64(r.u64()), Blocks: r.u64(),
		Mode: r.mode(), Nlink: r.u32(), UID: r.u32(), GID: r.u32(),
		Atime: r.time(), Mtime: r.time(), Ctime: r.time()}
	if a.Size < 0 && r.err == nil {
		r.err = fmt.Errorf("%w: a file of %d bytes", ErrMessage, a.Size)
	}
	return a
}

// bulk reads a Bulk, which stands last.
func (r *reader) bulk() *rpc.Bulk {
	if r.err != nil {
		return nil
	}
	b, rest, err := rpc.DecodeBulk(r.b)
	if err != nil {
		r.err = fmt.Errorf("%w: its bulk: %w", ErrMessage, err)
		return nil
	}
	r.b = rest
	return b
}

func appendList(b []byte, v ListReply) ([]byte, error) {
	if len(v.Entries) > MaxBatch {
		return nil, fmt.Errorf("%w: %d entries, at most %d", ErrMessage, len(v.Entries), MaxBatch)
	}
	b = le.AppendUint16(appendFlag(b, v.End), uint16(len(v.Entries)))
	for i := range v.Entries {
		if len(v.Entries[i].Name) > MaxNameBytes {
			return nil, fmt.Errorf("%w: a name of %d bytes", ErrMessage, len(v.Entries[i].Name))
		}
		b = le.AppendUint16(appendText(b, v.Entries[i].Name), v.Entries[i].Errno)
		b = v.Entries[i].Attr.append(b)
	}
	return b, nil
}

func (r *reader) list() (v ListReply) {
	v.End = r.flag()
	n := int(r.u16())
	if r.err == nil && (n > MaxBatch || n*entryBytes > len(r.b)) {
		r.err = fmt.Errorf("%w: %d entries in %d bytes", ErrMessage, n, len(r.b))
	}
	if r.err != nil {
		return v
	}
	v.Entries = make([]Entry, 0, n)
	for range n {
		v.Entries = append(v.Entries, Entry{Name: r.text(MaxNameBytes), Errno: r.errno(), Attr: r.attr()})
	}
	return v
}
