// Package share says how much of what there is for all one principal may have, and counts it.
//
// Every table of places that peers can fill goes by it: one that all could fill together has a bound, and one principal has three quarters of that at most,
// so whatever it does there is some left for the others.
package share

import "fmt"

// Of is the most of limit that one principal has at once: three quarters, rounded up.
func Of[T int | int64 | uint64](limit T) T { return limit - limit/4 }

// Places counts the places of one table that each principal has. It is not safe for concurrent use.
type Places struct {
	Limit int    // of all
	What  string // are counted, as in "loads under way"

	all int
	of  map[string]int
}

// Take gives a principal one more place. The error says which limit is reached, and by whom.
func (p *Places) Take(who string) error {
	switch has := p.of[who]; {
	case has >= Of(p.Limit):
		return &FullError{p.What, who, has, Of(p.Limit)}
	case p.all >= p.Limit:
		return &FullError{p.What, "", p.all, p.Limit}
	}
	if p.of == nil {
		p.of = map[string]int{}
	}
	p.of[who]++
	p.all++
	return nil
}

// Give takes a place back that Take gave.
func (p *Places) Give(who string) {
	p.all--
	if p.of[who]--; p.of[who] <= 0 {
		delete(p.of, who)
	}
}

// Has is how many places a principal has.
func (p *Places) Has(who string) int { return p.of[who] }

// FullError says that there is no place.
type FullError struct {
	What       string
	Who        string // the principal that has its share; "": all together have all
	Has, Limit int
}

func (e *FullError) Error() string {
	if e.Who == "" {
		return fmt.Sprintf("there are %d %s, the most there can be: try again later", e.Has, e.What)
	}
	return fmt.Sprintf("principal %q has %d %s, the most for one: let some end first", e.Who, e.Has, e.What)
}
