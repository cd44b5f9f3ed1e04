// Package report shows what a run of the demo found: the answers first, then what each
// method cost. One [Report] is written three ways: for a terminal ([Text]), for
// programs ([JSON]) and as one page that needs nothing else ([HTML]).
//
// # Model
//
// A report has an [Environment] and some [Question]s; a question has an answer
// in words and one [Method] for each way it was answered. The first method is what the
// others are compared with.
//
// A report is plain data: this package measures nothing and computes only
// ratios and scales.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// Format is the version of what JSON writes. Fields are only ever added to it.
const Format = 1

// Environment says where and how the figures were taken.
type Environment struct {
	Dataset     string   `json:"dataset"`
	DatasetDate string   `json:"dataset_date"`
	Vertices    int      `json:"vertices"`
	Edges       int      `json:"edges"`
	Elements    int      `json:"elements"`
	Transports  []string `json:"transports"`
	// Processors are the elements', in order; none if all are this machine's.
	Processors []string `json:"processors,omitempty"`
	// Objects says which functions ran as machine code for emulated processors, and that they gave the right answer.
	Objects []string `json:"objects,omitempty"`
	// Bitcode says which functions were compiled where they arrived, and that they gave the right answer; none if no node runs bitcode.
	Bitcode []string `json:"bitcode,omitempty"`
	// DataBytes is what the graph and the chase's table take on all elements together; LentBytes
	// is what each element may lend at most, 0 if nobody said.
	DataBytes uint64 `json:"data_bytes"`
	LentBytes uint64 `json:"lent_bytes_at_most"`
	Machine   string `json:"machine"` // host name and architecture
	CPU       string `json:"cpu"`
	Cores     int    `json:"cores"`
	Kernel    string `json:"kernel"`
	GoVersion string `json:"go_version"`
	// Pinned says how client and elements were bound to CPUs; empty if they were not.
	Pinned string `json:"pinned"`
	// EmulatedRTTNs is the round trip that was added to every method's time; 0 if none was.
	EmulatedRTTNs int64 `json:"emulated_rtt_ns"`
	// ClientRTTNs and ClientBitsPerS say how far the client is, for FarTimeNs of the methods; 0 if it is here.
	ClientRTTNs    int64  `json:"emulated_client_rtt_ns"`
	ClientBitsPerS uint64 `json:"emulated_client_bits_per_s"`
	TakenAt        string `json:"taken_at"` // RFC 3339
}

// Method is one way of answering a question and what it cost.
type Method struct {
	Name  string `json:"method"` // short and stable, for programs
	Title string `json:"-"`      // for people
	// RoundTrips is how many times the client waited for answers, one after the other.
	RoundTrips uint64 `json:"round_trips"`
	// Operations is how many reads or invocations the client started.
	Operations uint64 `json:"operations"`
	// Chain is how many messages followed one another at most; 0 where nobody counted.
	Chain int `json:"chain"`
	// Messages counts what travelled: requests, replies and what elements sent each other.
	Messages        uint64 `json:"messages"`
	BytesToClient   uint64 `json:"bytes_to_client"`
	BytesFromClient uint64 `json:"bytes_from_client"`
	BytesBetween    uint64 `json:"bytes_between_elements"`
	// TimeNs is the median of Runs; Min and Max bound them.
	TimeNs    int64 `json:"time_ns"`
	MinTimeNs int64 `json:"min_time_ns"`
	MaxTimeNs int64 `json:"max_time_ns"`
	// FarTimeNs is TimeNs and what the method's round trips and bytes take to a client as far as the
	// environment says; 0 if it says nothing.
	FarTimeNs int64 `json:"far_time_ns,omitempty"`
	// FirstTimeNs is the first answer's, before those that TimeNs is taken from:
	// code travels and is compiled, caches are cold.
	FirstTimeNs int64 `json:"first_time_ns"`
	Runs        int   `json:"runs"`
	// Checked says that every run's answer was held against one computed here, and agreed.
	Checked bool `json:"checked"`
	// Failure says why there is no figure: an error, a time limit, or that the
	// method cannot answer this question. The other fields are then zero.
	Failure string `json:"failure,omitempty"`
	// Broken says that the failure is a mistake: a wrong answer, or an error that is no time limit.
	Broken bool `json:"broken,omitempty"`
}

// Question is what was asked, what the answer is and how it was found.
type Question struct {
	Name   string   `json:"question"` // short and stable, for programs
	Title  string   `json:"title"`    // as people ask it
	Answer []string `json:"answer"`   // lines of text
	Result Result   `json:"result"`   // the answer, for programs
	// LocalNs is how long the answer takes to compute from a copy of the data that is here already.
	LocalNs int64 `json:"local_time_ns"`
	// Changes says that the data changed between answers.
	Changes bool `json:"data_changes"`
	// Crossover is where fetching everything begins to win.
	Crossover *Crossover `json:"crossover,omitempty"`
	Exact     string     `json:"exact,omitempty"`
	// Methods were all run in turn, interleaved.
	Methods []Method `json:"-"`
	// Note says why the first method loses where it does.
	Note string `json:"note,omitempty"`
}

// Result is an answer as data. A question has some of the fields.
type Result struct {
	Count  *int     `json:"count,omitempty"`  // of names
	Names  []string `json:"names,omitempty"`  // of vertices, in the order that the question asks for
	Counts []uint64 `json:"counts,omitempty"` // of each name
	Index  *uint64  `json:"index,omitempty"`
}

// Ratio is how many times the first method's duration another one took; 0 if
// either has no figure.
func (q *Question) Ratio(i int) float64 {
	if q.Methods[i].TimeNs <= 0 || q.Methods[0].TimeNs <= 0 {
		return 0
	}
	return float64(q.Methods[i].TimeNs) / float64(q.Methods[0].TimeNs)
}

// Shown is Ratio of the times that are compared: to a client that is far, if the environment says so.
func (q *Question) Shown(i int) float64 {
	if q.Methods[i].shown() <= 0 || q.Methods[0].shown() <= 0 {
		return 0
	}
	return float64(q.Methods[i].shown()) / float64(q.Methods[0].shown())
}

// Cross fills in where fetching everything begins to win.
func (r *Report) Cross() {
	for i := range r.Questions {
		r.Questions[i].Crossover = r.Questions[i].cross(&r.Environment)
	}
}

// Report is a whole run.
type Report struct {
	Environment Environment
	Questions   []Question
}

// Failed reports whether anything went wrong. That a method ran out of time, or cannot answer a
// question at all, is no mistake.
func (r *Report) Failed() bool {
	for i := range r.Questions {
		if slices.ContainsFunc(r.Questions[i].Methods, func(m Method) bool { return m.Broken }) {
			return true
		}
	}
	return false
}

// measurement is one row of what JSON writes.
type measurement struct {
	Question string `json:"question"`
	Method
	Ratio float64 `json:"time_ratio"`
	Shown float64 `json:"shown_time_ratio"` // of far_time_ns, where there is one
}

// JSON writes the report as one object of flat lists: "environment", "answers"
// (one entry a question) and "measurements" (one entry a question and method).
func JSON(w io.Writer, r *Report) error {
	out := struct {
		Format       int           `json:"format"`
		Environment  Environment   `json:"environment"`
		Answers      []Question    `json:"answers"`
		Measurements []measurement `json:"measurements"`
	}{Format, r.Environment, r.Questions, []measurement{}}
	if out.Answers == nil {
		out.Answers = []Question{}
	}
	for i := range r.Questions {
		q := &r.Questions[i]
		for k, m := range q.Methods {
			out.Measurements = append(out.Measurements, measurement{q.Name, m, q.Ratio(k), q.Shown(k)})
		}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(out); err != nil {
		return fmt.Errorf("report: writing JSON: %w", err)
	}
	return nil
}

// Lines describes the environment for people, label and value.
func (e *Environment) Lines() [][2]string {
	rtt := "none"
	if e.EmulatedRTTNs > 0 {
		rtt = duration(time.Duration(e.EmulatedRTTNs)) + " added to every round trip: these times are emulated, not a network's"
	}
	client := "on this machine"
	if d := e.distance(); d != "" {
		client = d + ": emulated, computed from each method's round trips and bytes"
	}
	pinned := e.Pinned
	if pinned == "" {
		pinned = "no: the kernel places client and elements"
	}
	data := fmt.Sprintf("%s: %s, %s", e.Dataset, Plural(uint64(e.Vertices), "vertex", "vertices"), Plural(uint64(e.Edges), "edge", "edges"))
	if e.DatasetDate != "" {
		data += ", archive of " + e.DatasetDate
	}
	elements := fmt.Sprintf("%d over %s", e.Elements, join(e.Transports))
	if len(e.Processors) > 0 {
		elements += ": " + join(e.Processors)
	}
	if len(e.Objects) > 0 {
		elements += "; as machine code " + join(e.Objects)
	}
	if len(e.Bitcode) > 0 {
		elements += "; as bitcode " + join(e.Bitcode)
	}
	if e.LentBytes > 0 {
		elements += fmt.Sprintf(", each a process that lends %s at most; the data takes %s in all", Size(e.LentBytes), Size(e.DataBytes))
	}
	return [][2]string{
		{"dataset", data},
		{"elements", elements},
		{"machine", fmt.Sprintf("%s, %s, %s", e.Machine, e.CPU, Plural(uint64(e.Cores), "core", "cores"))},
		{"software", fmt.Sprintf("Linux %s, %s", e.Kernel, e.GoVersion)},
		{"pinned", pinned},
		{"emulated rtt", rtt},
		{"client", client},
		{"taken", e.TakenAt},
	}
}
