package debgraph

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Limits of a package index. Debian's main has 64 thousand stanzas and its
// longest line (a Rust crate's Provides) 58 thousand bytes.
const (
	maxStanzas   = 1 << 20
	maxLineBytes = 4 << 20
	// maxFieldBytes bounds one field with its continuation lines.
	maxFieldBytes = 16 << 20
)

// stanza is what one package's entry says, as far as the graph is concerned.
type stanza struct {
	name, version, arch, multiArch string
	preDepends, depends, provides  string
}

// readStanzas reads a package index (the Packages file of an archive, or what
// apt-cache dumpavail prints) and hands every entry to yield, in order. Fields that it
// does not know are skipped.
func readStanzas(r io.Reader, yield func(stanza) error) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), maxLineBytes)
	var s stanza
	var field *string
	started, count := false, 0
	finish := func(line int) error {
		if !started {
			return nil
		}
		if s.name == "" || s.version == "" {
			return fmt.Errorf("debgraph: index line %d: an entry without Package or Version (name %q)", line, s.name)
		}
		if count++; count > maxStanzas {
			return fmt.Errorf("%w: more than %d entries", ErrTooLarge, maxStanzas)
		}
		err := yield(s)
		s, field, started = stanza{}, nil, false
		return err
	}
	line := 0
	for sc.Scan() {
		line++
		text := sc.Text()
		if strings.TrimRight(text, " \t\r") == "" {
			if err := finish(line); err != nil {
				return err
			}
			continue
		}
		if text[0] == ' ' || text[0] == '\t' {
			if field != nil {
				if len(*field)+len(text) > maxFieldBytes {
					return fmt.Errorf("%w: index line %d: a field above %d bytes", ErrTooLarge, line, maxFieldBytes)
				}
				*field += text
			} else if !started {
				return fmt.Errorf("debgraph: index line %d: a continuation line without a field", line)
			}
			continue
		}
		key, value, ok := strings.Cut(text, ":")
		if !ok {
			return fmt.Errorf("debgraph: index line %d: %.40q is no \"Field: value\"", line, text)
		}
		started = true
		if field = s.field(key); field != nil {
			if *field != "" {
				return fmt.Errorf("debgraph: index line %d: field %s is there twice", line, key)
			}
			*field = strings.TrimSpace(value)
		}
	}
	if err := sc.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			return fmt.Errorf("%w: index line %d is longer than %d bytes", ErrTooLarge, line+1, maxLineBytes)
		}
		return fmt.Errorf("debgraph: reading the index: %w", err)
	}
	return finish(line + 1)
}

// field is where the value of a field belongs; nil if nothing needs it.
func (s *stanza) field(key string) *string {
	switch key {
	case "Package":
		return &s.name
	case "Version":
		return &s.version
	case "Architecture":
		return &s.arch
	case "Multi-Arch":
		return &s.multiArch
	case "Pre-Depends":
		return &s.preDepends
	case "Depends":
		return &s.depends
	case "Provides":
		return &s.provides
	}
	return nil
}

// relation is one alternative of a dependency, or one provided name.
type relation struct {
	name    string
	arch    string // after the colon: "any", an architecture, or empty
	op      string // one of < <= = >= > ("<<" and ">>" become these), or empty
	version string
}

// parseRelations reads a Depends-like field: groups separated by commas, each
// of alternatives separated by bars.
func parseRelations(field string) ([][]relation, error) {
	var groups [][]relation
	for group := range strings.SplitSeq(field, ",") {
		if strings.TrimSpace(group) == "" {
			continue // a trailing comma is allowed
		}
		var alts []relation
		for alt := range strings.SplitSeq(group, "|") {
			r, err := parseRelation(alt)
			if err != nil {
				return nil, err
			}
			alts = append(alts, r)
		}
		groups = append(groups, alts)
	}
	return groups, nil
}

// parseRelation reads "name", "name:arch" or either with "(op version)".
func parseRelation(text string) (relation, error) {
	var r relation
	head, rest, constrained := strings.Cut(strings.TrimSpace(text), "(")
	r.name, r.arch, _ = strings.Cut(strings.TrimSpace(head), ":")
	if r.name == "" || strings.ContainsAny(r.name+r.arch, " \t\r()[]<>") {
		return r, fmt.Errorf("%.60q names no package", text)
	}
	if len(r.name) > MaxNameBytes {
		return r, fmt.Errorf("%w: a name of %d bytes", ErrTooLarge, len(r.name))
	}
	if !constrained {
		return r, nil
	}
	inner, after, closed := strings.Cut(rest, ")")
	if !closed || strings.TrimSpace(after) != "" {
		return r, fmt.Errorf("%.60q: the version is not in one pair of brackets", text)
	}
	inner = strings.TrimSpace(inner)
	n := len(inner) - len(strings.TrimLeft(inner, "<>="))
	op, ok := normalOp(inner[:n])
	r.op, r.version = op, strings.TrimSpace(inner[n:])
	if !ok || r.version == "" {
		return r, fmt.Errorf("%.60q: %q is no version constraint", text, inner)
	}
	return r, nil
}

// normalOp maps the operators of Debian Policy 7.1, with the two deprecated ones that mean
// "or equal", to plain ones.
func normalOp(op string) (string, bool) {
	switch op {
	case "<<":
		return "<", true
	case "<", "<=":
		return "<=", true
	case "=":
		return "=", true
	case ">", ">=":
		return ">=", true
	case ">>":
		return ">", true
	}
	return "", false
}

// allows reports whether a version meets the relation's constraint.
func (r *relation) allows(version string) bool {
	if r.op == "" {
		return true
	}
	c := CompareVersions(version, r.version)
	switch r.op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case "=":
		return c == 0
	case ">=":
		return c >= 0
	default:
		return c > 0
	}
}
