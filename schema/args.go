package schema

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// MaxArgsBytes bounds encoded arguments, text included. An element's limit on
// payloads is usually lower.
const MaxArgsBytes = 16 << 20

// EncodeArgs makes a function's payload from values by name: one record, then
// the text of its Str fields, each referred to by its offset from the payload's
// first byte. A parameter that is not given takes its default; one that OneOf does
// not allow is refused. A Column is given by the name of a field of dataset, the schema of the rows the function
// runs on (nil if it runs on none).
func (s *Schema) EncodeArgs(values map[string]string, dataset *Schema) ([]byte, error) {
	c, err := s.CheckedParams()
	if err != nil {
		return nil, err
	}
	return c.EncodeArgs(values, dataset)
}

// EncodeArgs is Schema.EncodeArgs, of parameters that were checked.
func (c *Checked) EncodeArgs(values map[string]string, dataset *Schema) ([]byte, error) {
	if dataset == nil {
		return c.encode(values, nil)
	}
	l, err := dataset.Layout()
	if err != nil {
		return nil, fmt.Errorf("the dataset's schema: %w", err)
	}
	places := make([]Place, len(dataset.Fields))
	for i, f := range dataset.Fields {
		places[i] = Place{f.Name, f.Type, l.Offsets[i]}
	}
	return c.encode(values, places)
}

// Place is where a parameter of type Column may say that a column is.
type Place struct {
	Name string
	Type Type   // as its values are stored; "": they are no single values
	At   uint32 // of a dataset of columns its number, of rows its offset
}

// EncodeColumnArgs is EncodeArgs for a dataset of columns: a Column is the number of one.
func (c *Checked) EncodeColumnArgs(values map[string]string, columns []Place) ([]byte, error) {
	return c.encode(values, columns)
}

// encode makes the payload.
func (c *Checked) encode(values map[string]string, columns []Place) ([]byte, error) {
	s := c.schema
	if err := s.checkNames(values); err != nil {
		return nil, err
	}
	e := argEncoder{columns: columns, layout: c.layout}
	e.out = make([]byte, e.layout.Size)
	var missing []string
	for i := range s.Fields {
		f := &s.Fields[i]
		text, given := values[f.Name]
		switch {
		case given:
		case f.Default != nil:
			text = *f.Default
		default:
			missing = append(missing, f.Name+" ("+string(f.Type)+")")
			continue
		}
		if err := e.put(i, f, text); err != nil {
			return nil, fmt.Errorf("%w: parameter %s: %w", ErrArgument, f.Name, err)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%w: no value for %s", ErrArgument, strings.Join(missing, ", "))
	}
	return e.out, nil
}

// checkNames refuses values for parameters that do not exist.
func (s *Schema) checkNames(values map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if s.Index(name) >= 0 {
			continue
		}
		known := s.Names()
		if len(known) == 0 {
			return fmt.Errorf("%w: there is no parameter %q; the function takes none", ErrArgument, clip(name))
		}
		return fmt.Errorf("%w: there is no parameter %q; %s", ErrArgument, clip(name), Suggest(name, known))
	}
	return nil
}

// FillArgs checks values by name and adds defaults, for a caller that does not encode them. The values of columns are not looked at.
func (s *Schema) FillArgs(values map[string]string) (map[string]string, error) {
	if err := s.checkNames(values); err != nil {
		return nil, err
	}
	filled := maps.Clone(values)
	if filled == nil {
		filled = map[string]string{}
	}
	var missing []string
	for i := range s.Fields {
		f := &s.Fields[i]
		text, given := filled[f.Name]
		switch {
		case !given && f.Default == nil:
			missing = append(missing, f.Name+" ("+string(f.Type)+")")
		case !given:
			filled[f.Name] = *f.Default
		case f.Type == Str:
			if err := f.among(text, nil); err != nil {
				return nil, fmt.Errorf("%w: parameter %s: %w", ErrArgument, f.Name, err)
			}
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%w: no value for %s", ErrArgument, strings.Join(missing, ", "))
	}
	return filled, nil
}

type argEncoder struct {
	columns []Place
	layout  Layout // of the parameters
	out     []byte
}

func (e *argEncoder) put(i int, f *Field, text string) error {
	at := e.layout.Offsets[i]
	dst := e.out[at : at+f.Type.Size()]
	switch f.Type {
	case Str:
		if err := f.among(text, nil); err != nil {
			return err
		}
		if len(e.out)+len(text) > MaxArgsBytes {
			return fmt.Errorf("the arguments take more than %d bytes", MaxArgsBytes)
		}
		binary.LittleEndian.PutUint32(dst, uint32(len(e.out)))
		binary.LittleEndian.PutUint32(dst[4:], uint32(len(text)))
		e.out = append(e.out, text...)
		return nil
	case Column:
		if e.columns == nil {
			return fmt.Errorf("%q would be a column of a dataset, but the function runs on no dataset with columns", clip(text))
		}
		i := slices.IndexFunc(e.columns, func(p Place) bool { return p.Name == text })
		if i < 0 {
			names := make([]string, len(e.columns))
			for i, p := range e.columns {
				names[i] = p.Name
			}
			return fmt.Errorf("the dataset has no column %q; %s", clip(text), Suggest(text, names))
		}
		at := e.columns[i]
		if at.Type == "" {
			return fmt.Errorf("the values of column %q are lists or structs, which functions do not read", clip(text))
		}
		if err := f.takes(text, at.Type); err != nil {
			return err
		}
		binary.LittleEndian.PutUint32(dst, at.At)
		binary.LittleEndian.PutUint32(dst[4:], at.Type.Code())
		return nil
	default:
		if err := f.Type.PutText(dst, []byte(text)); err != nil {
			return err
		}
		return f.among(text, dst)
	}
}

// maxListed is how many known names a message lists.
const maxListed = 16

// Suggest is the end of a message about an unknown name: what was probably
// meant if a known name is close, else the known names.
func Suggest(name string, known []string) string {
	best, bestDistance := "", 1+max(1, (len(name)+2)/3)
	if len(name) <= 4*MaxNameBytes {
		for _, k := range known {
			if d := distance(strings.ToLower(name), strings.ToLower(k)); d < bestDistance {
				best, bestDistance = k, d
			}
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	if len(known) == 0 {
		return "there are none"
	}
	return "there are " + listed(known)
}

// listed names what is known, or the first of it.
func listed(known []string) string {
	if len(known) > maxListed {
		return strings.Join(known[:maxListed], ", ") + fmt.Sprintf(" and %d more", len(known)-maxListed)
	}
	return strings.Join(known, ", ")
}

// distance is how many bytes are added, dropped, changed, or swapped with their
// neighbour (optimal string alignment).
func distance(a, b string) int {
	before, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			change := row[j]
			if a[i] != b[j] {
				change++
			}
			next[j+1] = min(change, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}
