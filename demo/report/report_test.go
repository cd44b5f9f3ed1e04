package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/wherry-fabric/wherry/internal/golden"
)

// sample has what a real report has, and what is awkward: a failure, a
// loss, text that needs escaping, a zero.
func sample() *Report {
	methods := func(inject, one, batch, all int64) []Method {
		return []Method{
			{Name: "injected", Title: "injected", RoundTrips: 1, Operations: 1, Messages: 26, BytesToClient: 748, BytesFromClient: 96, BytesBetween: 5310, TimeNs: inject, MinTimeNs: inject - 100, MaxTimeNs: inject + 900, Runs: 5, Checked: true},
			{Name: "get", Title: "Get, one at a time", RoundTrips: 345, Operations: 345, Messages: 690, BytesToClient: 6128, BytesFromClient: 8280, TimeNs: one, Runs: 5, Checked: true},
			{Name: "get-batched", Title: "Get, batched", RoundTrips: 16, Operations: 345, Messages: 690, BytesToClient: 6128, BytesFromClient: 8280, TimeNs: batch, Runs: 5, Checked: true},
			{Name: "fetch-all", Title: "fetch all, compute", RoundTrips: 1, Operations: 8, Messages: 16, BytesToClient: 1572780, BytesFromClient: 192, TimeNs: all, Runs: 5, Checked: true},
		}
	}
	r := &Report{
		Environment: Environment{
			Dataset: "Debian bookworm main, amd64", DatasetDate: "Sat, 11 Jul 2026 10:16:37 UTC", Vertices: 63666, Edges: 265843,
			Elements: 4, Transports: []string{"shm"}, DataBytes: 3_150_000, LentBytes: 1_250_000, Machine: "boat, amd64", CPU: "a <fast> & small CPU", Cores: 2, Kernel: "6.1.0",
			GoVersion: "go1.26.0", Pinned: "client on CPU 0, elements on CPU 1", TakenAt: "2026-07-20T12:00:00Z",
		},
		Questions: []Question{
			{Name: "needs", Title: "What does firefox-esr end up needing?", Answer: []string{"172 packages.", "adduser, adwaita-icon-theme, at-spi2-common, at-spi2-core, base-files, ca-certificates, cdebconf, and 165 more"}, Methods: methods(412_000, 2_300_000, 690_000, 1_900_000)},
			{Name: "top", Title: "Which packages do most others end up needing?", Answer: []string{"1. gcc-12-base 49,586"}, Exact: "All counts are exact; the first 3 ranks are proven.", Methods: methods(48_000_000, 310_000_000, 95_000_000, 2_100_000),
				Note: "Here the injected functions lose: the whole graph is 2.3 MB, so fetching it costs less than the messages."},
			{Name: "chase", Title: "Where do 10,000 hops through a random permutation lead?", Answer: []string{"to 4711"}, Methods: methods(3_100_000, 4_000_000_000, 0, 1_900_000)},
		},
	}
	r.Questions[2].Methods[2] = Method{Name: "get-batched", Title: "Get, batched", Failure: "every hop depends on the one before: there is nothing to batch"}
	return r
}

// far says that the client is 20 ms away on 100 Mbit/s.
func far(r *Report) {
	r.Environment.ClientRTTNs, r.Environment.ClientBitsPerS = 20_000_000, 100_000_000
	for i := range r.Questions {
		for k := range r.Questions[i].Methods {
			if m := &r.Questions[i].Methods[k]; m.TimeNs > 0 {
				m.FarTimeNs = m.TimeNs + 20_000_000*int64(m.RoundTrips) + 80*int64(m.BytesToClient+m.BytesFromClient)
			}
		}
	}
	r.Cross()
}

// TestCross computes by hand where fetching everything and the functions meet.
func TestCross(t *testing.T) {
	inject := Method{Name: "injected", RoundTrips: 1, BytesToClient: 1000, TimeNs: 3_000_000}
	fetch := Method{Name: "fetch-all", RoundTrips: 1, BytesToClient: 1_001_000, TimeNs: 1_000_000}
	for name, c := range map[string]struct {
		q    Question
		far  bool
		want *Crossover
		says string
	}{
		// 1,000,000 bytes more in 2 ms less: 8 Mbit in 2 ms.
		"here": {Question{Methods: []Method{inject, fetch}}, false, &Crossover{BitsPerS: 4e9, Questions: 1, DataBytes: 3_003_000}, "slower than 4.00 Gbit/s. Fetching takes as long as they do, here, once the data has 3.00 MB."},
		// 23.08 ms against 101.08 ms, and 1.08 ms if the data is here: 100 ms are made good after 4.5 questions.
		"far":       {Question{Methods: []Method{inject, fetch}, LocalNs: 1_080_000}, true, &Crossover{BitsPerS: 4e9, Questions: 5}, "if the data stays as it is for 5 questions"},
		"changing":  {Question{Methods: []Method{inject, fetch}, Changes: true}, true, &Crossover{BitsPerS: 4e9, Questions: -1}, "cannot keep what it fetched"},
		"always":    {Question{Methods: []Method{fetch, inject}}, false, nil, ""}, // the second has another name
		"no figure": {Question{Methods: []Method{inject, {Name: "fetch-all", Failure: "stopped"}}}, false, nil, ""},
	} {
		r := &Report{Questions: []Question{c.q}}
		if c.far {
			far(r)
		}
		r.Cross()
		got := r.Questions[0].Crossover
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if got != nil && !strings.Contains(got.text(&r.Questions[0], c.far), c.says) {
			t.Errorf("%s: %s", name, got.text(&r.Questions[0], c.far))
		}
	}
}

// TestSummary: the wins come with their figures, and say at which distance.
func TestSummary(t *testing.T) {
	r := sample()
	lead, lines := r.Summary()
	if lead != "With client and elements on one machine, functions are the fastest way to 1 of 3 answers." || len(lines) != 3 || !strings.HasSuffix(lines[1], `48.0 ms by functions, 2.10 ms by "fetch all, compute": 0.04×`) {
		t.Errorf("%s %q", lead, lines)
	}
	far(r)
	lead, lines = r.Summary()
	if lead != "With the client 20.0 ms away on a link of 100 Mbit/s (emulated) and the elements near each other, functions are the fastest way to 3 of 3 answers." || !strings.HasSuffix(lines[0], "7.21×") {
		t.Errorf("%s %q", lead, lines)
	}
}

// TestChartsFit: neither a figure behind a bar nor a mark of an axis is cut off, in a font that is 0.66 em wide.
func TestChartsFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := &Question{}
		for range rapid.IntRange(1, 5).Draw(t, "methods") {
			n := rapid.Int64Range(1, 1e12)
			q.Methods = append(q.Methods, Method{Title: "fetch all, compute", TimeNs: n.Draw(t, "time"), RoundTrips: uint64(n.Draw(t, "trips")), BytesToClient: uint64(n.Draw(t, "bytes"))})
		}
		for _, c := range charts(q) {
			for _, b := range c.Bars {
				if right := b.FigureX + 11*0.66*float64(utf8.RuneCountInString(b.Figure)); right > c.Width {
					t.Errorf("%s: %q ends at %.0f of %.0f", c.Title, b.Figure, right, c.Width)
				}
			}
			for _, m := range c.Ticks {
				if half := 9.5 * 0.66 * float64(utf8.RuneCountInString(m.Text)) / 2; m.X-half < 0 || m.X+half > c.Width {
					t.Errorf("%s: the mark %q at %.0f is cut off", c.Title, m.Text, m.X)
				}
			}
		}
	})
}

func TestText(t *testing.T) {
	for name, o := range map[string]TextOptions{"plain80": {}, "narrow44": {Width: 44}, "wide120": {Width: 120}, "colour100": {Width: 100, Color: true}} {
		r := sample()
		if name == "wide120" {
			r.Environment.EmulatedRTTNs = 200_000
			far(r)
		}
		var b bytes.Buffer
		if err := Text(&b, r, o); err != nil {
			t.Fatal(err)
		}
		golden.Check(t, filepath.Join("testdata", name+".txt"), b.Bytes())
		if strings.Contains(b.String(), "\x1b") != o.Color {
			t.Errorf("%s: escape sequences", name)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); !o.Color && n > max(o.Width, 80) {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
	}
}

func TestTextSaysEmulated(t *testing.T) {
	r := sample()
	r.Environment.EmulatedRTTNs = 200_000
	var text, page bytes.Buffer
	if err := errors.Join(Text(&text, r, TextOptions{Width: 60}), HTML(&page, r)); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{text.String(), page.String()} {
		if !strings.Contains(s, "emulated") || !strings.Contains(s, "200 µs") {
			t.Error("an emulated round trip is not mentioned")
		}
	}
}

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	if err := JSON(&b, sample()); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/report.json", b.Bytes())
	var back struct {
		Format       int
		Measurements []map[string]any
	}
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || back.Format != Format || len(back.Measurements) != 12 {
		t.Fatalf("%v %+v", err, back)
	}
	for _, m := range back.Measurements {
		for name, v := range m {
			switch v.(type) {
			case string, float64, bool:
			default:
				t.Errorf("%s is no flat value: %v", name, v)
			}
		}
	}
	b.Reset()
	if err := JSON(&b, &Report{}); err != nil || strings.Contains(b.String(), ": null,\n  \"measurements") {
		t.Errorf("an empty report: %v %s", err, b.String())
	}
}

// TestHTML reads the page as XML, which finds every unclosed element, and looks for
// what would make a browser ask a server.
func TestHTML(t *testing.T) {
	var b bytes.Buffer
	if err := HTML(&b, sample()); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/report.html", b.Bytes())
	seen := map[string]int{}
	d := xml.NewDecoder(bytes.NewReader(b.Bytes()))
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		e, ok := tok.(xml.StartElement)
		if !ok {
			continue
		}
		seen[e.Name.Local]++
		for _, a := range e.Attr {
			switch a.Name.Local {
			case "src", "href", "srcset", "action", "data", "onload", "onclick":
				t.Errorf("<%s %s=%q>", e.Name.Local, a.Name.Local, a.Value)
			}
		}
	}
	for _, name := range []string{"script", "link", "img", "iframe", "object"} {
		if seen[name] > 0 {
			t.Errorf("the page has <%s>", name)
		}
	}
	if seen["svg"] != 9 || seen["table"] != 3 || seen["caption"] != 3 {
		t.Errorf("%v", seen)
	}
	text := strings.NewReplacer("http://www.w3.org/1999/xhtml", "", "http://www.w3.org/2000/svg", "").Replace(b.String())
	for _, s := range []string{"http:", "https:", "url(", "@import", "ZgotmplZ"} {
		if strings.Contains(text, s) {
			t.Errorf("the page has %q", s)
		}
	}
}

func TestUnits(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0 s", 999: "999 ns", 1000: "1.00 µs", 999_499: "999 µs", 999_500: "1.00 ms", 12_345_678: "12.3 ms", 999_500_000: "1.00 s", 83 * time.Second: "83.0 s"} {
		if got := duration(d); got != want {
			t.Errorf("%d ns: %s, not %s", d, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0 B", 999: "999 B", 1000: "1.00 kB", 999_499: "999 kB", 999_500: "1.00 MB", 5_000_000_000: "5.00 GB"} {
		if got := Size(n); got != want {
			t.Errorf("%d bytes: %s, not %s", n, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := Count(n); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	for x, want := range map[float64]string{0: "–", 0.01: "0.01×", 1: "1.00×", 47.25: "47.2×", 1290.3: "1,290×"} {
		if got := ratio(x); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
}

func TestScaleStaysInside(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := make([]float64, rapid.IntRange(1, 6).Draw(t, "methods"))
		for i := range values { // whole numbers, as everything that is drawn
			values[i] = float64(rapid.Int64Range(0, 1e15).Draw(t, "value"))
		}
		s := newScale(values)
		for _, v := range values {
			if f := s.at(v); !(f >= 0 && f <= 1.000001) || v > 0 && f == 0 {
				t.Fatalf("%v is drawn at %v of %+v", v, f, s)
			}
			if n := utf8.RuneCountInString(bar(s.at(v), 30)); n < 1 || n > 31 {
				t.Fatalf("a bar of %d columns", n)
			}
		}
		for _, v := range s.ticks() {
			if f := s.at(v); !(f >= 0 && f <= 1.001) {
				t.Fatalf("a mark at %v", f)
			}
		}
	})
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, fmt.Errorf("the disk is full") }

func TestWriteErrorsAreReported(t *testing.T) {
	r := sample()
	for i, err := range []error{Text(brokenWriter{}, r, TextOptions{}), JSON(brokenWriter{}, r), HTML(brokenWriter{}, r)} {
		if err == nil {
			t.Errorf("writer %d hid that nothing was written", i)
		}
	}
}

// What makes the whole run a failure: a mistake of any method, not a limit.
func TestFailed(t *testing.T) {
	late := Method{Failure: "stopped after 10s"}
	wrong := Method{Failure: "the answer is wrong", Broken: true}
	for name, c := range map[string]struct {
		methods []Method
		want    bool
	}{
		"all well": {[]Method{{}, {}}, false}, "out of time": {[]Method{late, late}, false},
		"the functions are wrong": {[]Method{wrong, {}}, true}, "a baseline is wrong": {[]Method{{}, wrong}, true},
	} {
		r := Report{Questions: []Question{{Methods: c.methods}}}
		if r.Failed() != c.want {
			t.Errorf("%s: %v", name, r.Failed())
		}
	}
}
