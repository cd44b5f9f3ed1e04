package figures

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// Sizes of the picture, in its own units.
const (
	svgWidth    = 900
	svgLeft     = 190 // where bars begin
	svgRight    = 160 // room for a bar's figure
	svgTop      = 92  // of the first panel
	svgRow      = 22
	svgBar      = 14
	svgPanelTop = 30 // a panel's title
	svgPanelEnd = 38 // its axis
)

// svgStyle makes the picture legible on white and on black.
const svgStyle = `text{font:12px system-ui,sans-serif;fill:#222}.t{font-size:17px;font-weight:600}.h{font-size:13px;font-weight:600}` +
	`.s{font-size:11px;fill:#555}.g{stroke:#ddd}.w{stroke:#222}.bg{fill:#fff}.verbs{fill:#0b6e99}.rpc{fill:#58a6c7}.ucx{fill:#b5651d}.other{fill:#8a8f98}` +
	`@media(prefers-color-scheme:dark){text{fill:#e6e6e6}.s{fill:#aaa}.g{stroke:#3a3a3a}.w{stroke:#e6e6e6}.bg{fill:#161616}}`

// WriteSVG draws the run: a panel per work, a bar per row, a line through each
// bar's end from the least round to the greatest. The picture needs nothing from outside.
func (t *Table) WriteSVG(w io.Writer) error {
	b := &strings.Builder{}
	y := float64(svgTop)
	for _, work := range Works() {
		if rows := t.of(work); len(rows) > 0 {
			y = t.panel(b, work, rows, y)
		}
	}
	out := &strings.Builder{}
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" width="%d" height="%.0f" role="img" aria-label="wherry and its peers">`+"\n",
		svgWidth, y, svgWidth, y)
	fmt.Fprintf(out, "<style>%s</style>\n<rect class=\"bg\" width=\"100%%\" height=\"100%%\"/>\n", svgStyle)
	text(out, 20, 30, "t", "start", "wherry and its peers, same work, same run")
	text(out, 20, 50, "s", "start", t.Machine.String())
	text(out, 20, 66, "s", "start", t.circumstances())
	out.WriteString(b.String())
	out.WriteString("</svg>\n")
	_, err := io.WriteString(w, out.String())
	return err
}

// circumstances are what all rows have in common.
func (t *Table) circumstances() string {
	pinning, rounds := "", 0
	for _, r := range t.Rows {
		pinning, rounds = r.Pinning, max(rounds, r.Rounds())
	}
	return fmt.Sprintf("%s; %d rounds, interleaved, turns of %s ms; bars: medians, lines: least and greatest round; logarithmic", pinning, rounds, short(t.TurnMs))
}

func (t *Table) panel(b *strings.Builder, work Work, rows []*Row, y float64) float64 {
	text(b, 20, y+14, "h", "start", work.Title())
	y += svgPanelTop
	scale := newLogScale(rows)
	const width = svgWidth - svgLeft - svgRight
	bottom := y + float64(len(rows))*svgRow
	if scale != nil {
		for e := scale.low; e <= scale.high; e++ {
			x := svgLeft + width*(e-scale.low)/(scale.high-scale.low)
			fmt.Fprintf(b, `<line class="g" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`+"\n", x, x, y-4, bottom)
			text(b, x, bottom+14, "s", "middle", power(e))
		}
	}
	for _, r := range rows {
		text(b, svgLeft-8, y+svgBar-3, "", "end", r.Label())
		v, least, most := r.Figure()
		if scale == nil || math.IsNaN(v) {
			text(b, svgLeft+4, y+svgBar-3, "s", "start", string(r.Status))
		} else {
			end := svgLeft + width*scale.at(v)
			fmt.Fprintf(b, `<rect class="%s" x="%d" y="%.1f" width="%.1f" height="%d"><title>`, family(r.Peer), svgLeft, y, max(end-svgLeft, 1), svgBar)
			escape(b, fmt.Sprintf("%s: %s (%s – %s), %s", r.Label(), short(v), short(least), short(most), r.Policy))
			b.WriteString("</title></rect>\n")
			x2 := svgLeft + width*scale.at(most)
			fmt.Fprintf(b, `<line class="w" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`+"\n", svgLeft+width*scale.at(least), x2, y+svgBar/2, y+svgBar/2)
			text(b, max(end, x2)+6, y+svgBar-3, "", "start", t.caption(r, v))
		}
		y += svgRow
	}
	return y + svgPanelEnd
}

// caption is a bar's figure, and how it compares with wherry.
func (t *Table) caption(r *Row, v float64) string {
	if strings.HasPrefix(r.Peer, "wherry") {
		return short(v)
	}
	base := RPCPeer
	if family(r.Peer) == "ucx" {
		base = VerbsPeer
	}
	times := r.Times(t.base(r, base))
	if math.IsNaN(times) {
		return short(v)
	}
	return fmt.Sprintf("%s (%s× %s)", short(v), short(times), base)
}

// family is a bar's class, hence its colour.
func family(peer string) string {
	switch {
	case peer == VerbsPeer:
		return "verbs"
	case peer == RPCPeer || peer == InlinePeer:
		return "rpc"
	case strings.HasPrefix(peer, "ucx"):
		return "ucx"
	}
	return "other"
}

// power writes 10 to the e.
func power(e float64) string {
	if e < 0 {
		return fmt.Sprintf("%.*f", int(-e), math.Pow(10, e))
	}
	return fmt.Sprintf("%.0f", math.Pow(10, e))
}

func text(b *strings.Builder, x, y float64, class, anchor, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">`, x, y, class, anchor)
	escape(b, s)
	b.WriteString("</text>\n")
}

func escape(b *strings.Builder, s string) {
	_ = xml.EscapeText(b, []byte(s)) // a Builder never fails
}
