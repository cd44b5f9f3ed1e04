package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

//go:embed page.tmpl
var pageSource string

// The charts' measures, in the SVG's own units: the page scales them.
const (
	chartWidth   = 360.0
	rowHeight    = 36.0
	barHeight    = 14.0
	figureChar   = 7.4 // width of one character at 11 px in a wide font: what is drawn is not to be cut off
	figureMargin = 5.0
	axisHeight   = 16.0
)

type page struct {
	Env       Environment
	Lead      string
	RTT       string
	Far       string // how far the client is; "" if it is here
	Summary   string
	Wins      []string
	Questions []pageQuestion
	Lines     [][2]string
}

type pageQuestion struct {
	*Question
	Cross  string
	ID     string
	Charts []chart
	Rows   []pageRow
}

type pageRow struct {
	First          bool
	Title, Failure string
	Cells          []string
}

type chart struct {
	Title, Label                string
	Log                         bool
	Width, Height, Floor, TickY float64
	Ticks                       []tick
	Bars                        []chartBar
}

type tick struct {
	X    float64
	Text string
}

type chartBar struct {
	Label, Figure, Class string
	LabelY, Y, W, H      float64
	FigureX, FigureY     float64
}

// HTML writes the report as one page. It holds its style and its charts and
// asks nothing of any server; it is well-formed XML as well.
func HTML(w io.Writer, r *Report) error {
	t, err := template.New("page").Parse(pageSource)
	if err != nil {
		return fmt.Errorf("report: the page's template: %w", err)
	}
	p := page{Env: r.Environment, Lines: r.Environment.Lines()}
	p.Lead = fmt.Sprintf("The same questions to the same data on %d elements, answered by functions that travel to the data, and by reading the data from afar.", r.Environment.Elements)
	if r.Environment.EmulatedRTTNs > 0 {
		p.RTT = duration(time.Duration(r.Environment.EmulatedRTTNs))
	}
	p.Far = r.Environment.distance()
	p.Summary, p.Wins = r.Summary()
	for i := range r.Questions {
		q := &r.Questions[i]
		pq := pageQuestion{Question: q, ID: fmt.Sprintf("q%d", i+1), Charts: charts(q), Rows: rows(q, p.Far != "")}
		if q.Crossover != nil {
			pq.Cross = q.Crossover.text(q, p.Far != "")
		}
		p.Questions = append(p.Questions, pq)
	}
	// Into memory first: a page that breaks off is worse than none.
	var b bytes.Buffer
	if err := t.Execute(&b, p); err != nil {
		return fmt.Errorf("report: making the page: %w", err)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("report: writing the page: %w", err)
	}
	return nil
}

func rows(q *Question, far bool) []pageRow {
	var out []pageRow
	for i, m := range q.Methods {
		checked := "NO"
		if m.Checked {
			checked = "yes"
		}
		cells := []string{Count(m.RoundTrips), Count(m.Messages), Size(m.BytesToClient), Size(m.BytesFromClient), Size(m.BytesBetween), duration(time.Duration(m.TimeNs))}
		if far {
			cells = append(cells, duration(time.Duration(m.FarTimeNs)))
		}
		cells = append(cells, ratio(q.Shown(i)), checked)
		out = append(out, pageRow{First: i == 0, Title: m.Title, Failure: m.Failure, Cells: cells})
	}
	return out
}

// timeTitle says which times a chart has.
func timeTitle(q *Question) string {
	if slices.ContainsFunc(q.Methods, func(m Method) bool { return m.FarTimeNs > 0 }) {
		return "Time, client far (emulated)"
	}
	return "Time"
}

// charts draws what the methods differ most in.
func charts(q *Question) []chart {
	return []chart{
		newChart(timeTitle(q), q, func(m *Method) float64 { return float64(m.shown()) }, func(v float64) string { return duration(time.Duration(v)) }),
		newChart("Round trips", q, func(m *Method) float64 { return float64(m.RoundTrips) }, func(v float64) string { return Count(uint64(v + 0.5)) }),
		newChart("Bytes at the client", q, func(m *Method) float64 { return float64(m.BytesToClient + m.BytesFromClient) }, func(v float64) string { return Size(uint64(v + 0.5)) }),
	}
}

func newChart(title string, q *Question, value func(*Method) float64, text func(float64) string) chart {
	c := chart{Title: title, Width: chartWidth}
	values := make([]float64, len(q.Methods))
	widest := 0
	var words []string
	for i := range q.Methods {
		m := &q.Methods[i]
		if m.Failure != "" {
			continue
		}
		values[i] = value(m)
		widest = max(widest, utf8.RuneCountInString(text(values[i])))
		words = append(words, m.Title+" "+text(values[i]))
	}
	c.Label = title + ": " + strings.Join(words, ", ")
	s := newScale(values)
	c.Log = s.log
	room := chartWidth - float64(widest)*figureChar - figureMargin - 2
	y := 0.0
	for i, m := range q.Methods {
		if m.Failure != "" {
			continue
		}
		class := "bar"
		if i == 0 {
			class = "bar first"
		}
		w := round(max(1.5, s.at(values[i])*room))
		c.Bars = append(c.Bars, chartBar{
			Label: m.Title, Figure: text(values[i]), Class: class,
			LabelY: y + 12, Y: y + 17, W: w, H: barHeight,
			FigureX: round(w + figureMargin), FigureY: y + 17 + barHeight - 3,
		})
		y += rowHeight
	}
	c.Floor, c.TickY, c.Height = y, y+axisHeight-4, y+axisHeight
	c.Ticks = axis(s, room, text)
	return c
}

// tickRoom is the least distance between two marks, so that their texts do not touch.
const tickRoom = 62.0

// axis places those of the scale's marks that have room. All values are whole
// numbers (nanoseconds, bytes, counts), so a mark between two would be mislabelled.
func axis(s scale, room float64, text func(float64) string) []tick {
	var out []tick
	last := -tickRoom
	for _, v := range s.ticks() {
		x := s.at(v) * room
		label := markText(text(v))
		half := float64(utf8.RuneCountInString(label)) * figureChar / 2
		if x-last < tickRoom || x < half || x+half > chartWidth || v != math.Trunc(v) {
			continue
		}
		out = append(out, tick{round(x), label})
		last = x
	}
	return out
}

// markText drops the zeros after a round number's point.
func markText(s string) string {
	number, unit, _ := strings.Cut(s, " ")
	if strings.Contains(number, ".") {
		number = strings.TrimRight(strings.TrimRight(number, "0"), ".")
	}
	return strings.TrimSpace(number + " " + unit)
}

// round keeps the page small: a tenth of a unit is finer than any screen.
func round(x float64) float64 { return float64(int(x*10+0.5)) / 10 }
