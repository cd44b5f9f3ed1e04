package cluster

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/wherry-fabric/wherry/column"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/schema"
)

// The encoding of a table; docs/table.md describes it. Each table has exactly one.
const (
	tableMagic   = "WSHT"
	tableVersion = 1
	// columnsVersion is that of tables of kind Columns, which have columns and parts too. Other tables keep the older form, which
	// older programs read.
	columnsVersion = 2
	// fileVersion is that of tables whose windows lie in an Arrow file (Table.File).
	fileVersion = 3
	// tableHeadBytes: magic, u16 version, u16 zero, u32 body length, u32 CRC-32C of the body.
	tableHeadBytes = 16
	// MaxTableBytes bounds an encoded table: MaxElements shards with all their
	// addresses and windows at their longest take 7 MiB, a schema 80 KiB.
	MaxTableBytes = 8 << 20

	windowBytes = fabric.KeyBytes + 8 + 8
)

func castagnoli(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// Encode is the table's canonical encoding. It refuses a table that is not valid.
func (t *Table) Encode() ([]byte, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	b := make([]byte, tableHeadBytes, 512)
	b = appendText(b, t.Name)
	b = le.AppendUint64(b, t.Version)
	b = append(b, byte(t.Kind), byte(t.Sharding.Kind))
	b = le.AppendUint16(b, uint16(len(t.Schema.Fields)))
	for _, f := range t.Schema.Fields {
		b = appendText(b, f.Name)
		b = le.AppendUint32(b, f.Type.Code())
		b = appendText(b, f.Help)
	}
	if t.Kind == Columns {
		b = appendColumns(b, t)
	}
	b = le.AppendUint32(b, t.Sharding.Elements)
	b = le.AppendUint64(b, t.Rows)
	b = appendText(b, t.Sharding.Key)
	b = le.AppendUint32(b, uint32(len(t.Sharding.Bounds)))
	for _, row := range t.Sharding.Bounds {
		b = le.AppendUint64(b, row)
	}
	for i := range t.Shards {
		b = appendShard(b, &t.Shards[i])
		if t.Kind == Columns {
			b = appendParts(b, t.Shards[i].Parts)
		}
	}
	if len(b) > MaxTableBytes {
		return nil, t.errorf("its encoding has %d bytes, at most %d are allowed", len(b), MaxTableBytes)
	}
	body := b[tableHeadBytes:]
	copy(b, tableMagic)
	le.PutUint16(b[4:], versionOf(t))
	le.PutUint32(b[8:], uint32(len(body)))
	le.PutUint32(b[12:], castagnoli(body))
	return b, nil
}

// appendShard leaves out what the sharding says: first row and rows.
func appendShard(b []byte, s *Shard) []byte {
	le := binary.LittleEndian
	b = appendText(b, s.Element)
	b = le.AppendUint64(b, uint64(s.Incarnation))
	b = append(b, byte(len(s.Addrs)), byte(len(s.Windows)))
	for _, a := range s.Addrs {
		b = appendText(b, a)
	}
	for _, w := range s.Windows {
		b = w.Key.Append(b)
		b = le.AppendUint64(b, w.Size)
		flags := uint64(0)
		if w.Writable {
			flags = 1
		}
		b = le.AppendUint64(b, flags)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

// DecodeTable reads an encoded table. It accepts exactly what Encode makes.
func DecodeTable(b []byte) (*Table, error) {
	le := binary.LittleEndian
	if len(b) < tableHeadBytes || string(b[:4]) != tableMagic {
		return nil, fmt.Errorf("%w: these %d bytes do not start with the magic %q", ErrTable, len(b), tableMagic)
	}
	version := le.Uint16(b[4:])
	if version < tableVersion || version > fileVersion {
		return nil, fmt.Errorf("%w: its format is version %d, this program reads versions %d to %d", ErrTable, version, tableVersion, fileVersion)
	}
	if len(b) > MaxTableBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrTable, len(b), MaxTableBytes)
	}
	body := b[tableHeadBytes:]
	if le.Uint16(b[6:]) != 0 || uint64(le.Uint32(b[8:])) != uint64(len(body)) {
		return nil, fmt.Errorf("%w: its header says %d bytes (flags %#x), there are %d", ErrTable, le.Uint32(b[8:]), le.Uint16(b[6:]), len(body))
	}
	if got, want := castagnoli(body), le.Uint32(b[12:]); got != want {
		return nil, fmt.Errorf("%w: its checksum is %08x, its header says %08x: it was damaged on the way", ErrTable, got, want)
	}
	d := decoder{rest: body, size: len(body)}
	t := d.table()
	if want := versionOf(t); version != want {
		d.fail("its format is version %d, one of kind %v has version %d", version, t.Kind, want)
	}
	if d.err == nil && len(d.rest) != 0 {
		d.fail("%d bytes follow its end", len(d.rest))
	}
	if d.err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTable, d.err)
	}
	t.FillRows()
	if err := t.Validate(); err != nil {
		return nil, err
	}
	return t, nil
}

// decoder reads values until one is missing; from then on it returns zeros.
type decoder struct {
	rest []byte
	size int
	err  error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("at byte %d: %s", tableHeadBytes+d.size-len(d.rest), fmt.Sprintf(format, args...))
		d.rest = nil
	}
}

func (d *decoder) take(n int) []byte {
	if n > len(d.rest) {
		d.fail("%d bytes are left of %d", len(d.rest), n)
	}
	if d.err != nil {
		return make([]byte, min(n, fabric.KeyBytes))
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) u8() byte    { return d.take(1)[0] }
func (d *decoder) u16() uint16 { return binary.LittleEndian.Uint16(d.take(2)) }
func (d *decoder) u32() uint32 { return binary.LittleEndian.Uint32(d.take(4)) }
func (d *decoder) u64() uint64 { return binary.LittleEndian.Uint64(d.take(8)) }

// text reads a string of at most limit bytes.
func (d *decoder) text(limit int) string {
	n := int(d.u16())
	if n > limit {
		d.fail("a text of %d bytes, at most %d are allowed", n, limit)
	}
	if d.err != nil {
		return ""
	}
	return string(d.take(n))
}

func (d *decoder) table() *Table {
	t := &Table{Name: d.text(MaxNameBytes), Version: d.u64(), Kind: Kind(d.u8())}
	t.Sharding.Kind = ShardKind(d.u8())
	fields := int(d.u16())
	if fields > schema.MaxFields {
		d.fail("%d fields, at most %d are allowed", fields, schema.MaxFields)
	}
	for range fields {
		if d.err != nil {
			return t
		}
		f := schema.Field{Name: d.text(schema.MaxNameBytes)}
		code := d.u32()
		f.Type, _ = schema.TypeOfCode(code)
		f.Help = d.text(schema.MaxHelpBytes)
		if f.Type == "" {
			d.fail("field %q has the unknown type code %#x", f.Name, code)
		}
		t.Schema.Fields = append(t.Schema.Fields, f)
	}
	if t.Kind == Columns {
		t.Columns = d.columns()
	}
	t.Sharding.Elements = d.u32()
	t.Sharding.Rows = d.u64()
	t.Sharding.Key = d.text(column.MaxNameBytes)
	bounds := int(d.u32())
	if t.Sharding.Elements > MaxElements || bounds > MaxElements+1 {
		d.fail("%d elements and %d bounds, at most %d elements are allowed", t.Sharding.Elements, bounds, MaxElements)
	}
	for range bounds {
		if d.err != nil {
			return t
		}
		t.Sharding.Bounds = append(t.Sharding.Bounds, d.u64())
	}
	for range t.Sharding.Elements {
		if d.err != nil {
			return t
		}
		s := d.shard()
		if t.Kind == Columns {
			s.Parts = d.parts(len(s.Windows))
		}
		t.Shards = append(t.Shards, s)
	}
	// ElementRows relies on a valid sharding.
	if d.err == nil {
		d.err = t.Sharding.Validate()
	}
	return t
}

func (d *decoder) shard() Shard {
	s := Shard{Element: d.text(MaxNameBytes), Incarnation: fabric.Incarnation(d.u64())}
	addrs, windows := int(d.u8()), int(d.u8())
	if addrs > MaxAddrs || windows > MaxWindows {
		d.fail("%d addresses and %d windows, at most %d and %d are allowed", addrs, windows, MaxAddrs, MaxWindows)
		return s
	}
	for range addrs {
		s.Addrs = append(s.Addrs, d.text(MaxAddrBytes))
	}
	for range windows {
		b := d.take(windowBytes)
		if d.err != nil {
			return s
		}
		key, err := fabric.DecodeKey(b[:fabric.KeyBytes])
		flags := binary.LittleEndian.Uint64(b[fabric.KeyBytes+8:])
		if err != nil || flags > 1 {
			d.fail("window %d of %s: flags %#x, %v", len(s.Windows), clip(s.Element), flags, err)
			return s
		}
		s.Windows = append(s.Windows, Window{Key: key, Size: binary.LittleEndian.Uint64(b[fabric.KeyBytes:]), Writable: flags&1 != 0})
	}
	return s
}
