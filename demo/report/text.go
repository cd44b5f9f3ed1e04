package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// TextOptions say what the terminal can do. The zero value is a plain file of 80 columns.
type TextOptions struct {
	// Width is the number of columns; 0 means 80. Below 40 counts as 40.
	Width int
	// Color allows escape sequences. The caller sets it only for a terminal,
	// and not if NO_COLOR is set.
	Color bool
}

const (
	defaultWidth = 80
	minWidth     = 40
	maxWidth     = 160 // wider lines are hard to follow
)

type textWriter struct {
	*bufio.Writer
	width int
	color bool
}

// Text writes the report for a terminal.
func Text(w io.Writer, r *Report, o TextOptions) error {
	if o.Width == 0 {
		o.Width = defaultWidth
	}
	t := textWriter{bufio.NewWriter(w), min(maxWidth, max(minWidth, o.Width)), o.Color}
	if lead, lines := r.Summary(); len(lines) > 0 {
		t.heading(lead)
		for _, line := range lines {
			t.wrapped("  - ", line)
		}
		t.WriteString("\n")
	}
	for i := range r.Questions {
		t.question(&r.Questions[i], &r.Environment)
	}
	t.heading("Where and how")
	lines := r.Environment.Lines()
	for _, l := range lines {
		t.wrapped(fmt.Sprintf("  %-13s", l[0]), l[1])
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

const (
	bold  = "\x1b[1m"
	dim   = "\x1b[2m"
	green = "\x1b[32m"
	blue  = "\x1b[34m"
	reset = "\x1b[0m"
)

func (t *textWriter) style(code, s string) string {
	if !t.color || s == "" {
		return s
	}
	return code + s + reset
}

func (t *textWriter) heading(s string) {
	for _, line := range wrap(s, t.width) {
		t.WriteString(t.style(bold, line) + "\n")
	}
}

// wrapped writes text in lines that fit, the first after label, the others indented as much.
func (t *textWriter) wrapped(label, text string) {
	indent := utf8.RuneCountInString(label)
	room := max(16, t.width-indent)
	for i, line := range wrap(text, room) {
		if i > 0 {
			label = strings.Repeat(" ", indent)
		}
		t.WriteString(label + line + "\n")
	}
}

// wrap cuts text at blanks; a word longer than room stands alone.
func wrap(text string, room int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > room {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

func (t *textWriter) question(q *Question, e *Environment) {
	t.heading(q.Title)
	for _, line := range q.Answer {
		t.wrapped("  ", line)
	}
	if q.Exact != "" {
		t.wrapped("  ", q.Exact)
	}
	t.WriteString("\n")
	t.table(q, e)
	t.bars(q, e)
	if q.Crossover != nil {
		t.wrapped("  ", q.Crossover.text(q, e.distance() != ""))
		t.WriteString("\n")
	}
	if q.Note != "" {
		t.wrapped("  ", q.Note)
		t.WriteString("\n")
	}
}

// column is one of the table's. Columns with a higher drop go first if the terminal is narrow.
type column struct {
	head string
	drop int
	cell func(i int) string
}

func columns(q *Question, e *Environment) []column {
	m := q.Methods
	number := func(f func(i int) string) func(i int) string {
		return func(i int) string {
			if m[i].Failure != "" {
				return "–"
			}
			return f(i)
		}
	}
	timeHead := "time"
	if e.EmulatedRTTNs > 0 {
		timeHead = "time (emulated)"
	}
	far := e.distance() != ""
	cols := []column{
		{"method", 0, func(i int) string { return m[i].Title }},
		{"round trips", 1, number(func(i int) string { return Count(m[i].RoundTrips) })},
		{"messages", 5, number(func(i int) string { return Count(m[i].Messages) })},
		{"to client", 2, number(func(i int) string { return Size(m[i].BytesToClient) })},
		{"between", 4, number(func(i int) string { return Size(m[i].BytesBetween) })},
		{timeHead, 0, number(func(i int) string { return duration(time.Duration(m[i].TimeNs)) })},
		{"far (emulated)", 0, number(func(i int) string { return duration(time.Duration(m[i].FarTimeNs)) })},
		{"ratio", 1, number(func(i int) string { return ratio(q.Shown(i)) })},
		{"checked", 3, number(func(i int) string {
			if m[i].Checked {
				return "yes"
			}
			return "NO"
		})},
	}
	if !far {
		cols = slices.DeleteFunc(cols, func(c column) bool { return c.head == "far (emulated)" })
	}
	return cols
}

const columnGap = 2

// table writes one line a method, leaving out columns that do not fit.
func (t *textWriter) table(q *Question, e *Environment) {
	cols := columns(q, e)
	widths := make([]int, len(cols))
	for c := range cols {
		widths[c] = utf8.RuneCountInString(cols[c].head)
		for i := range q.Methods {
			widths[c] = max(widths[c], utf8.RuneCountInString(cols[c].cell(i)))
		}
	}
	for drop := 5; drop > 0 && total(widths) > t.width; drop-- {
		for c := range cols {
			if cols[c].drop == drop {
				widths[c] = 0
			}
		}
	}
	var line strings.Builder
	row := func(cell func(c int) string) string {
		line.Reset()
		for c := range cols {
			if widths[c] == 0 {
				continue
			}
			s := cell(c)
			pad := strings.Repeat(" ", widths[c]-utf8.RuneCountInString(s))
			if c == 0 {
				line.WriteString("  " + s + pad)
			} else {
				line.WriteString(strings.Repeat(" ", columnGap) + pad + s)
			}
		}
		return strings.TrimRight(line.String(), " ")
	}
	t.WriteString(t.style(dim, row(func(c int) string { return cols[c].head })) + "\n")
	for i := range q.Methods {
		text := row(func(c int) string { return cols[c].cell(i) })
		if i == 0 {
			text = t.style(bold, text)
		}
		t.WriteString(text + "\n")
	}
	t.WriteString("\n")
	failed := false
	for _, m := range q.Methods {
		if m.Failure != "" {
			t.wrapped("  ", m.Title+": "+m.Failure)
			failed = true
		}
	}
	if failed {
		t.WriteString("\n")
	}
}

func total(widths []int) int {
	sum := 0
	for _, w := range widths {
		if w > 0 {
			sum += w + columnGap
		}
	}
	return sum
}

// bars draws the times.
func (t *textWriter) bars(q *Question, e *Environment) {
	values := make([]float64, len(q.Methods))
	labels, figures, drawn := 0, 0, 0
	for i, m := range q.Methods {
		values[i] = float64(m.shown())
		if m.TimeNs > 0 {
			drawn++
		}
		labels = max(labels, utf8.RuneCountInString(m.Title))
		figures = max(figures, utf8.RuneCountInString(duration(time.Duration(m.shown()))))
	}
	room := t.width - labels - figures - 6
	if drawn < 2 || room < 8 {
		return
	}
	s := newScale(values)
	for i, m := range q.Methods {
		if values[i] == 0 {
			continue
		}
		code := blue
		if i == 0 {
			code = green
		}
		pad := strings.Repeat(" ", labels-utf8.RuneCountInString(m.Title))
		t.WriteString("  " + m.Title + pad + "  " + t.style(code, bar(s.at(values[i]), room)) + " " + duration(time.Duration(m.shown())) + "\n")
	}
	caption := "time"
	if e.distance() != "" {
		caption = "far, emulated"
	}
	if s.log {
		caption += ", logarithmic"
	}
	t.WriteString("  " + t.style(dim, strings.Repeat(" ", labels)+"  ("+caption+")") + "\n")
	t.WriteString("\n")
}

// bar draws a fraction of room columns in eighths of a column; what is
// above 0 shows.
func bar(fraction float64, room int) string {
	eighths := max(1, int(fraction*float64(room)*8+0.5))
	s := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		s += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return s
}
