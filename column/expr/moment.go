package expr

import (
	"go/ast"
	"time"

	"github.com/wherry-fabric/wherry/column"
)

// timely reports types that count time.
func timely(t column.Type) bool { return t.ID >= column.Date32 && t.ID <= column.Duration }

// layouts are the forms of a point in time, from long to short; without an offset it is in the column's zone.
var layouts = []string{"2006-01-02T15:04:05.999999999Z07:00", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly}

// moment converts a text literal that is compared with a timestamp, a date, a uuid or an ip to one; other literals stay as they are.
func (r *reader) moment(n, beside *Node, at ast.Node) (*Node, error) {
	t := beside.Type
	if t.Extension != column.NoExtension {
		v, err := t.Extension.Read(n.Text)
		if err != nil {
			return nil, r.fail(at, "%v", err)
		}
		return &Node{Op: Literal, Kind: Raw, Type: t, Text: string(v[:])}, nil
	}
	if t.ID != column.Timestamp && t.ID != column.Date32 {
		return n, nil
	}
	zone, err := t.Location()
	if err != nil {
		return nil, r.fail(at, "this machine does not know the zone %q: %v", t.Zone, err)
	}
	var when time.Time
	read := layouts
	if t.ID == column.Date32 { // a time of day would be lost
		read = []string{time.DateOnly}
	}
	local := false // without an offset
	for i, layout := range read {
		if when, err = time.Parse(layout, n.Text); err == nil {
			local = i > 0
			break
		}
	}
	if err != nil && t.ID == column.Date32 {
		return nil, r.fail(at, "%q is no date, as in 2026-03-01", n.Text)
	}
	if err != nil {
		return nil, r.fail(at, "%q is no moment, as in 2026-03-01T12:00:00Z or 2026-03-01", n.Text)
	}
	out := &Node{Op: Literal, Kind: Int, Type: t}
	if t.ID == column.Date32 {
		y, m, d := when.Date()
		out.Int = time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / 86400
		return out, nil
	}
	per, seconds := t.Unit.PerSecond(), when.Unix()
	if local && zone != time.UTC {
		if seconds, err = column.InZone(seconds, zone); err != nil {
			return nil, r.fail(at, "%q: %v", n.Text, err)
		}
	}
	if limit := int64(1)<<62/per - 1; seconds > limit || seconds < -limit {
		return nil, r.fail(at, "%q does not fit into %v", n.Text, t)
	}
	out.Int = seconds*per + int64(when.Nanosecond())/(1e9/per)
	if int64(when.Nanosecond())%(1e9/per) != 0 {
		return nil, r.fail(at, "%q has more digits than %v counts", n.Text, t)
	}
	return out, nil
}
