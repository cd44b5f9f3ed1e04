package report

import (
	"fmt"
	"math"
	"time"
)

// Crossover is where fetching everything begins to beat the functions, computed
// from the round trips, bytes and times of one run.
type Crossover struct {
	// BitsPerS is the client's bandwidth below which the functions are faster; 0: at none, -1: at any.
	BitsPerS float64 `json:"client_bits_per_s"`
	// Questions is how many questions about the same data it takes until a client that fetches once and
	// keeps the data is faster, fetching included; -1: no number is enough, or the data changes.
	Questions int64 `json:"questions"`
	// DataBytes is how large the data would have to be for fetching it to take as long as the functions do,
	// if it grows and they do not; 0 where they are faster already.
	DataBytes uint64 `json:"data_bytes,omitempty"`
}

// fetchAll is the method that reads everything; nil if it has no figure.
func (q *Question) fetchAll() *Method {
	for i := range q.Methods {
		if m := &q.Methods[i]; i > 0 && m.Name == "fetch-all" && m.TimeNs > 0 {
			return m
		}
	}
	return nil
}

// cross computes where fetching everything and the functions meet; nil if one of them has no figure.
func (q *Question) cross(e *Environment) *Crossover {
	all := q.fetchAll()
	if all == nil || q.Methods[0].TimeNs <= 0 {
		return nil
	}
	inject := &q.Methods[0]
	bytes := func(m *Method) float64 { return float64(m.BytesToClient + m.BytesFromClient) }
	// How much longer the functions take on a link without limit, in seconds.
	longer := float64(inject.TimeNs-all.TimeNs)/1e9 + (float64(inject.RoundTrips)-float64(all.RoundTrips))*float64(e.ClientRTTNs)/1e9
	c := &Crossover{Questions: -1}
	switch fewer := 8 * (bytes(all) - bytes(inject)); {
	case longer <= 0:
		c.BitsPerS = -1
	case fewer > 0:
		c.BitsPerS = fewer / longer
	}
	ask, fetch, local := float64(inject.shown()), float64(all.shown()), float64(q.LocalNs)
	if ask > local && !q.Changes {
		c.Questions = int64(max(1, math.Ceil((fetch-local)/(ask-local))))
	}
	if ask > fetch {
		c.DataBytes = uint64(bytes(all) * ask / fetch)
	}
	return c
}

// text is the crossover in words.
func (c *Crossover) text(q *Question, far bool) string {
	s := "The functions are faster than fetching everything on any client link."
	switch {
	case c.BitsPerS == 0:
		s = "Fetching everything is faster on any client link."
	case c.BitsPerS > 0:
		s = fmt.Sprintf("The functions are faster than fetching everything while the client's link is slower than %s.", bandwidth(c.BitsPerS))
	}
	at := "here"
	if far {
		at = "at this distance"
	}
	switch {
	case c.DataBytes > 0:
		s += fmt.Sprintf(" Fetching takes as long as they do, %s, once the data has %s.", at, Size(c.DataBytes))
	case c.Questions > 1:
		s += fmt.Sprintf(" A client that fetches once and keeps the data is faster, %s, if the data stays as it is for %s.", at, Plural(uint64(c.Questions), "question", "questions"))
	case q.Changes:
		s += " The data changes between answers, so a client cannot keep what it fetched."
	case c.Questions < 0:
		s += " A client that keeps the data is not faster, however long the data stays as it is."
	}
	return s
}

// bandwidth writes bits a second.
func bandwidth(bits float64) string {
	for _, u := range []struct {
		least float64
		name  string
	}{{1e9, "Gbit/s"}, {1e6, "Mbit/s"}, {1e3, "kbit/s"}} {
		if bits >= u.least*0.9995 {
			return digits(bits/u.least) + " " + u.name
		}
	}
	return digits(bits) + " bit/s"
}

// shown is the time that is compared: the emulated one if there is one.
func (m *Method) shown() int64 {
	if m.FarTimeNs > 0 {
		return m.FarTimeNs
	}
	return m.TimeNs
}

// best is the fastest of the methods that read; nil if none has a figure.
func (q *Question) best() *Method {
	var best *Method
	for i := range q.Methods {
		if m := &q.Methods[i]; i > 0 && m.TimeNs > 0 && (best == nil || m.shown() < best.shown()) {
			best = m
		}
	}
	return best
}

// Win is how many times as long as the functions the fastest of the other methods takes; 0 if either has no figure.
func (q *Question) Win() float64 {
	best := q.best()
	if best == nil || len(q.Methods) == 0 || q.Methods[0].TimeNs <= 0 {
		return 0
	}
	return float64(best.shown()) / float64(q.Methods[0].shown())
}

// distance says how far the client is said to be; "" if it is here.
func (e *Environment) distance() string {
	switch {
	case e.ClientRTTNs > 0 && e.ClientBitsPerS > 0:
		return fmt.Sprintf("%s away on a link of %s", duration(time.Duration(e.ClientRTTNs)), bandwidth(float64(e.ClientBitsPerS)))
	case e.ClientRTTNs > 0:
		return duration(time.Duration(e.ClientRTTNs)) + " away"
	case e.ClientBitsPerS > 0:
		return "on a link of " + bandwidth(float64(e.ClientBitsPerS))
	}
	return ""
}

// Summary is what came out, in a line for each question, the greatest win first as the questions are.
func (r *Report) Summary() (lead string, lines []string) {
	won := 0
	for i := range r.Questions {
		q := &r.Questions[i]
		best := q.best()
		if q.Win() == 0 {
			lines = append(lines, q.Title+" There is no figure to compare.")
			continue
		}
		if q.Win() > 1 {
			won++
		}
		lines = append(lines, fmt.Sprintf("%s %s by functions, %s by %q: %s", q.Title, duration(time.Duration(q.Methods[0].shown())),
			duration(time.Duration(best.shown())), best.Title, ratio(q.Win())))
	}
	where := "With client and elements on one machine"
	if d := r.Environment.distance(); d != "" {
		where = fmt.Sprintf("With the client %s (emulated) and the elements near each other", d)
	}
	return fmt.Sprintf("%s, functions are the fastest way to %d of %s.", where, won, Plural(uint64(len(r.Questions)), "answer", "answers")), lines
}
