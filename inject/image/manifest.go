package image

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/schema"
)

// Limits of a manifest. The ready functions need about 1 KiB; these leave room
// for long help texts and keep what a receiver must parse small.
const (
	MaxManifestBytes    = 64 << 10
	MaxNameBytes        = 64
	MaxDescriptionBytes = 8 << 10
	MaxWindows          = 64
)

// Start says on which elements an invocation starts, unless the caller says otherwise.
type Start string

const (
	StartEvery Start = "every" // one branch on each element of the shard table
	StartChunk Start = "chunk" // the same, or one for each of several workers there, which share the element's chunks
	StartFirst Start = "first" // one branch on element 0
	StartOwner Start = "owner" // one branch on the element that owns the row in OwnerParam
)

// ResultForm says what the bytes of a reply are.
type ResultForm string

const (
	// ResultRaw is bytes without a schema.
	ResultRaw ResultForm = "raw"
	// ResultRecord is one record of the result schema, then its strings.
	ResultRecord ResultForm = "record"
	// ResultRows means that every part is what schema.DecodePart reads: a count
	// of rows, the rows and their strings.
	ResultRows ResultForm = "rows"
	// ResultList means that every part is records of the result schema one
	// after the other, without a count or padding; they have no str field.
	ResultList ResultForm = "list"
)

// Window names a window that a function expects, at its index in Manifest.Windows.
type Window struct {
	Name     string `json:"name"`
	Writable bool   `json:"writable,omitempty"`
	// Type, of window 0 only, says that a dataset's rows must be one value of this type each, whatever its name; empty: any rows.
	Type schema.Type `json:"type,omitempty"`
	Help string      `json:"help,omitempty"`
}

// ColumnsWindow is the name of the first window of a function that reads columns: a dataset has as many windows of parts as it likes, and the
// function finds all of them.
const ColumnsWindow = "columns"

// ReadsColumns reports whether the function reads a dataset of columns.
func (m *Manifest) ReadsColumns() bool {
	return len(m.Windows) > 0 && m.Windows[0].Name == ColumnsWindow
}

// WorkersParam is the parameter, of an integer type, by which a function that starts by chunk hears how many workers each element has, and
// then shares the rows among them itself.
const WorkersParam = "workers"

// HearsWorkers reports whether the function has that parameter.
func (m *Manifest) HearsWorkers() bool {
	if m.Params == nil {
		return false
	}
	i := m.Params.Index(WorkersParam)
	return i >= 0 && m.Params.Fields[i].Type.IsInteger()
}

// SharesRows reports whether several workers of the function can each read a share of an element's rows: it hears how many there are, or it
// reads columns and has the calls by which wherry_chunk_next of wherry_columns.h finds that out. Each worker of any other would read all.
func (m *Manifest) SharesRows() bool {
	return m.HearsWorkers() || m.ReadsColumns() && slices.Contains(m.Imports, "row") && slices.Contains(m.Imports, "owner")
}

// Manifest is what an image says about its function. Everything in it is a
// claim or a wish of its author; an element's own rules always win.
type Manifest struct {
	Name        string `json:"name"` // a label: a-z, 0-9, '-', '_' and '.'
	ABI         uint32 `json:"abi"`  // abi.Version it was built for
	Description string `json:"description,omitempty"`
	Start       Start  `json:"start"`
	// OwnerParam names the integer parameter that holds the row (StartOwner only).
	OwnerParam string         `json:"owner_param,omitempty"`
	Params     *schema.Schema `json:"params,omitempty"` // nil: the payload is raw bytes
	Result     *schema.Schema `json:"result,omitempty"` // nil for ResultRaw
	ResultForm ResultForm     `json:"result_form"`
	// Ranges says that it needs every element to hold a range of rows (see cluster.Sharding.Contiguous).
	Ranges bool `json:"ranges,omitempty"`
	// Rows are the rows that a dataset must have: these fields in this order. nil: any rows.
	Rows    *schema.Schema `json:"rows,omitempty"`
	Windows []Window       `json:"windows,omitempty"`
	// Constants are what functions derived from this one have: a record, without text. nil: none can be derived.
	Constants *schema.Schema `json:"constants,omitempty"`
	Limits    abi.Limits     `json:"limits,omitzero"`
	// Imports are the host calls that the code uses; sorted, each once. Build fills them in from a wasm entry.
	Imports []string `json:"imports,omitempty"`
	// Source is the SHA-256 of the source it was built from, in hex, or empty.
	Source string `json:"source,omitempty"`
}

// ErrManifest says that a manifest breaks a rule.
var ErrManifest = errors.New("image: bad manifest")

// ParseManifest reads a manifest that a person wrote: any white space and
// order of fields, but no field that does not exist. Zero values of abi, start
// and result_form are filled in. It does not check further: Build does.
func ParseManifest(text []byte) (Manifest, error) {
	if len(text) > MaxManifestBytes {
		return Manifest{}, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrManifest, len(text), MaxManifestBytes)
	}
	m, err := decodeManifest(text)
	if err != nil {
		return Manifest{}, err
	}
	return m.withDefaults(), nil
}

func decodeManifest(text []byte) (Manifest, error) {
	var m Manifest
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return Manifest{}, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return Manifest{}, fmt.Errorf("%w: something follows the closing brace at byte %d", ErrManifest, dec.InputOffset())
	}
	return m, nil
}

// withDefaults fills in what a person may leave out, and sorts the sets.
func (m Manifest) withDefaults() Manifest {
	m = m.clone()
	if m.ABI == 0 {
		m.ABI = abi.Version
	}
	if m.Start == "" {
		m.Start = StartFirst
		if m.OwnerParam != "" {
			m.Start = StartOwner
		}
	}
	if m.ResultForm == "" {
		m.ResultForm = ResultRaw
		if m.Result != nil {
			m.ResultForm = ResultRows
		}
	}
	slices.Sort(m.Imports)
	m.Imports = slices.Compact(m.Imports)
	// An empty list is not written, so it is read back as nil.
	if len(m.Windows) == 0 {
		m.Windows = nil
	}
	if len(m.Imports) == 0 {
		m.Imports = nil
	}
	return m
}

// clone copies m and everything it points to.
func (m Manifest) clone() Manifest {
	m.Params = cloneSchema(m.Params)
	m.Result = cloneSchema(m.Result)
	m.Rows = cloneSchema(m.Rows)
	m.Constants = cloneSchema(m.Constants)
	m.Windows = slices.Clone(m.Windows)
	m.Imports = slices.Clone(m.Imports)
	return m
}

func cloneSchema(s *schema.Schema) *schema.Schema {
	if s == nil {
		return nil
	}
	c := &schema.Schema{Fields: slices.Clone(s.Fields)}
	for i, f := range c.Fields {
		c.Fields[i].OneOf = append([]string(nil), f.OneOf...) // an empty list is not written, so it is read back as nil
		if f.Default != nil {
			v := *f.Default
			c.Fields[i].Default = &v
		}
	}
	return c
}

// canonical is the one encoding of m: JSON without white space, fields in the
// order of the struct, empty ones left out, HTML characters not escaped.
func (m *Manifest) canonical() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// validate checks every rule of docs/image.md, except those on entries.
func (m *Manifest) validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrManifest, fmt.Sprintf(format, args...))
	}
	if err := checkLabel(m.Name, MaxNameBytes); err != nil {
		return bad("name: %v", err)
	}
	if m.ABI == 0 || m.ABI > abi.Version {
		return bad("abi %d is not known here, which implements up to %d; rebuild the function for it or update this element", m.ABI, abi.Version)
	}
	if len(m.Description) > MaxDescriptionBytes {
		return bad("description has %d bytes, at most %d are allowed", len(m.Description), MaxDescriptionBytes)
	}
	if !utf8.ValidString(m.Description) {
		return bad("description is not UTF-8")
	}
	if err := checkSchema(m.Params, (*schema.Schema).ValidateParams); err != nil {
		return bad("params: %v", err)
	}
	if err := checkSchema(m.Result, (*schema.Schema).ValidateResult); err != nil {
		return bad("result: %v", err)
	}
	if err := checkSchema(m.Rows, (*schema.Schema).ValidateDataset); err != nil {
		return bad("rows: %v", err)
	}
	if err := checkSchema(m.Constants, validateConstants); err != nil {
		return bad("constants: %v", err)
	}
	if err := m.checkStart(); err != nil {
		return bad("%v", err)
	}
	switch m.ResultForm {
	case ResultRaw:
		if m.Result != nil {
			return bad("result_form is raw, yet there is a result schema")
		}
	case ResultRecord, ResultRows, ResultList:
		if m.Result == nil {
			return bad("result_form is %s, yet there is no result schema", m.ResultForm)
		}
		if l, err := m.Result.Layout(); m.ResultForm == ResultList && (err != nil || l.HasStr) {
			return bad("result_form is list, yet the result has a str field; make it rows")
		}
	default:
		return bad("result_form %q is none of raw, record, rows, list", clip(string(m.ResultForm)))
	}
	return m.checkLists(bad)
}

func (m *Manifest) checkLists(bad func(string, ...any) error) error {
	if len(m.Windows) > MaxWindows {
		return bad("%d windows, at most %d are allowed", len(m.Windows), MaxWindows)
	}
	for i, w := range m.Windows {
		if err := checkLabel(w.Name, MaxNameBytes); err != nil {
			return bad("window %d: name: %v", i, err)
		}
		if err := w.checkType(i); err != nil {
			return bad("window %d: %v", i, err)
		}
	}
	for _, name := range m.Imports {
		if _, err := abi.CallNamed(clip(name), m.ABI); err != nil {
			return bad("imports: %v", err)
		}
	}
	if !ascending(m.Imports) {
		return bad("imports are not sorted, each once")
	}
	if m.Limits.RunTime < 0 {
		return bad("limits: run_time_ns is negative")
	}
	if m.Source != "" {
		if b, err := hex.DecodeString(m.Source); err != nil || len(b) != 32 || strings.ToLower(m.Source) != m.Source {
			return bad("source %q is not 64 lower-case hex digits", clip(m.Source))
		}
	}
	return nil
}

// MaxConstantsBytes bounds the constants of a derived function: they travel with every branch.
const MaxConstantsBytes = 4 << 10

// validateConstants wants a record of fixed size.
func validateConstants(s *schema.Schema) error {
	if err := s.ValidateDataset(); err != nil {
		return err
	}
	switch l, err := s.Layout(); {
	case err != nil:
		return err
	case l.HasStr:
		return errors.New("a str field; use bytesN")
	case l.Size > MaxConstantsBytes:
		return fmt.Errorf("a record of %d bytes, at most %d are allowed", l.Size, MaxConstantsBytes)
	}
	return nil
}

// checkType: rows lie in window 0, and are what a dataset's schema can name.
func (w Window) checkType(index int) error {
	switch {
	case w.Type == "":
		return nil
	case index != 0:
		return fmt.Errorf("type %q is given, but only window 0 holds rows", clip(string(w.Type)))
	}
	row := schema.Schema{Fields: []schema.Field{{Name: "row", Type: w.Type}}}
	if err := row.ValidateDataset(); err != nil {
		return fmt.Errorf("type: %w", err)
	}
	return nil
}

func (m *Manifest) checkStart() error {
	switch m.Start {
	case StartEvery, StartChunk, StartFirst:
		if m.OwnerParam != "" {
			return fmt.Errorf("owner_param %q is given, but start is %q and not %q", clip(m.OwnerParam), m.Start, StartOwner)
		}
		return nil
	case StartOwner:
	default:
		return fmt.Errorf("start %q is none of every, chunk, first, owner", clip(string(m.Start)))
	}
	if m.Params != nil {
		for _, f := range m.Params.Fields {
			if f.Name != m.OwnerParam {
				continue
			}
			if f.Type.IsInteger() {
				return nil
			}
			return fmt.Errorf("owner_param %q is of type %s; a row is an integer", f.Name, f.Type)
		}
	}
	return fmt.Errorf("start is owner, but owner_param %q is no parameter", clip(m.OwnerParam))
}

func checkSchema(s *schema.Schema, validate func(*schema.Schema) error) error {
	if s == nil {
		return nil
	}
	if len(s.Fields) == 0 {
		return errors.New("a schema without fields; leave it out instead")
	}
	for i, f := range s.Fields {
		// JSON would change other text, and with it the schema.
		if !utf8.ValidString(f.Help) || !utf8.ValidString(strings.Join(f.OneOf, " ")) || (f.Default != nil && !utf8.ValidString(*f.Default)) {
			return fmt.Errorf("field %d has text that is not UTF-8", i)
		}
	}
	return validate(s)
}

// CheckName says why no function can have a name; nil: one can.
func CheckName(name string) error { return checkLabel(name, MaxNameBytes) }

// checkLabel accepts what can stand in a file name, a URL and a shell word unquoted.
func checkLabel(s string, most int) error {
	if s == "" {
		return errors.New("is empty")
	}
	if len(s) > most {
		return fmt.Errorf("%q has %d bytes, at most %d are allowed", clip(s), len(s), most)
	}
	if s[0] == '.' || s[0] == '-' {
		return fmt.Errorf("%q starts with %q", clip(s), s[0])
	}
	for _, c := range []byte(s) {
		ok := c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
		if !ok {
			return fmt.Errorf("%q has the character %q; only a-z, 0-9, '-', '_' and '.' are allowed", clip(s), rune(c))
		}
	}
	return nil
}

// ascending reports whether every string is greater than the one before it.
func ascending(s []string) bool {
	for i := 1; i < len(s); i++ {
		if s[i] <= s[i-1] {
			return false
		}
	}
	return true
}
