package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// MaxTextBytes bounds a schema's text or JSON form.
const MaxTextBytes = 1 << 20

// Parse reads the short text form: fields separated by commas, each
//
//	name:type[:merge][=default]
//
// as in "host:str:key,hits:u64:sum" or "limit:u32=100". A default that
// contains a comma or starts with a quote is written as a Go string ("a,b").
// Spaces around a field's parts are ignored. The empty text is a schema without fields.
func Parse(text string) (*Schema, error) {
	if len(text) > MaxTextBytes {
		return nil, fmt.Errorf("%w: %d bytes of text, at most %d are allowed", ErrSchema, len(text), MaxTextBytes)
	}
	s := &Schema{}
	rest := strings.TrimSpace(text)
	for more := rest != ""; more; {
		var f Field
		var err error
		if f, rest, more, err = parseField(rest); err != nil {
			return nil, fmt.Errorf("%w: field %d: %w", ErrSchema, len(s.Fields)+1, err)
		}
		s.Fields = append(s.Fields, f)
		if len(s.Fields) > MaxFields {
			break
		}
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return s, nil
}

// parseField takes one field off text; more says that a comma followed it.
func parseField(text string) (f Field, rest string, more bool, err error) {
	end := strings.IndexAny(text, ",=")
	if end < 0 {
		end = len(text)
	}
	parts := strings.Split(text[:end], ":")
	if len(parts) < 2 || len(parts) > 3 {
		return f, "", false, fmt.Errorf("%q is not name:type or name:type:merge", clip(strings.TrimSpace(text[:end])))
	}
	f.Name, f.Type = strings.TrimSpace(parts[0]), Type(strings.TrimSpace(parts[1]))
	if len(parts) == 3 {
		f.Merge = strings.TrimSpace(parts[2])
	}
	if end < len(text) && text[end] == '=' {
		value, after, err := parseDefault(text[end+1:])
		if err != nil {
			return f, "", false, fmt.Errorf("%s: %w", f.Name, err)
		}
		f.Default = &value
		text, end = after, 0
	}
	if end == len(text) {
		return f, "", false, nil
	}
	return f, text[end+1:], true, nil
}

// parseDefault reads what follows "=": up to the next comma, or a quoted Go string.
func parseDefault(text string) (value, rest string, err error) {
	text = strings.TrimLeft(text, " ")
	if !strings.HasPrefix(text, `"`) {
		end := strings.IndexByte(text, ',')
		if end < 0 {
			end = len(text)
		}
		return strings.TrimSpace(text[:end]), text[end:], nil
	}
	quoted, err := strconv.QuotedPrefix(text)
	if err != nil {
		return "", "", fmt.Errorf("the default %s is not a closed quoted string", clip(text))
	}
	value, err = strconv.Unquote(quoted)
	if err != nil {
		return "", "", fmt.Errorf("the default %s is not a quoted string", clip(quoted))
	}
	rest = strings.TrimLeft(text[len(quoted):], " ")
	if rest != "" && rest[0] != ',' {
		return "", "", fmt.Errorf("a comma is missing after the default %s", clip(quoted))
	}
	return value, rest, nil
}

// String is the short text form, without help texts.
func (s *Schema) String() string {
	var b strings.Builder
	for i, f := range s.Fields {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(f.Name)
		b.WriteByte(':')
		b.WriteString(string(f.Type))
		if f.Merge != MergeNone {
			b.WriteByte(':')
			b.WriteString(f.Merge)
		}
		if f.Default != nil {
			b.WriteByte('=')
			if d := *f.Default; strings.ContainsAny(d, ",\"") || strings.TrimSpace(d) != d {
				b.WriteString(strconv.Quote(d))
			} else {
				b.WriteString(d)
			}
		}
	}
	return b.String()
}

// ParseJSON reads the JSON form, {"fields":[{"name":…,"type":…},…]}. Unknown
// members are refused: they would be a misspelt one more often than not.
func ParseJSON(data []byte) (*Schema, error) {
	if len(data) > MaxTextBytes {
		return nil, fmt.Errorf("%w: %d bytes of JSON, at most %d are allowed", ErrSchema, len(data), MaxTextBytes)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	s := &Schema{}
	if err := d.Decode(s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSchema, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: something follows the JSON object", ErrSchema)
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return s, nil
}

// ParseAny reads the JSON form if text starts with "{", else the short form.
func ParseAny(text string) (*Schema, error) {
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		return ParseJSON([]byte(text))
	}
	return Parse(text)
}

// CStruct prints the record as a C struct called name, with its size checked at
// compile time. It needs <stdint.h>; str and column fields are spelled out as structs
// of two uint32_t. Words that C keeps for itself get a trailing underscore.
func (s *Schema) CStruct(name string) (string, error) {
	l, err := s.Layout()
	if err != nil {
		return "", err
	}
	if err := ValidateName(name); err != nil {
		return "", fmt.Errorf("%w: struct: %w", ErrSchema, err)
	}
	if cKeywords[name] {
		name += "_"
	}
	var b strings.Builder
	if len(s.Fields) == 0 {
		fmt.Fprintf(&b, "/* struct %s has no fields: C has no empty struct. */\n", name)
		return b.String(), nil
	}
	fmt.Fprintf(&b, "struct %s { /* %s */\n", name, strings.ReplaceAll(s.plain(), "*/", "* /"))
	for i, f := range s.Fields {
		b.WriteString("\t" + cField(f) + ";")
		fmt.Fprintf(&b, " /* offset %d", l.Offsets[i])
		if f.Help != "" {
			help := strings.Join(strings.Fields(f.Help), " ")
			b.WriteString(": " + strings.ReplaceAll(help, "*/", "* /"))
		}
		b.WriteString(" */\n")
	}
	fmt.Fprintf(&b, "};\n_Static_assert(sizeof(struct %s) == %d, \"layout of %s\");\n", name, l.Size, name)
	return b.String(), nil
}

// plain is the text form without defaults.
func (s *Schema) plain() string {
	bare := Schema{Fields: make([]Field, len(s.Fields))}
	for i, f := range s.Fields {
		bare.Fields[i] = Field{Name: f.Name, Type: f.Type}
	}
	return bare.String()
}

func cField(f Field) string {
	name := f.Name
	if cKeywords[name] {
		name += "_"
	}
	info, _ := f.Type.info()
	switch {
	case f.Type == Str:
		return "struct { uint32_t offset, length; } " + name
	case f.Type == Column:
		return "struct { uint32_t offset, type; } " + name
	case info.code > codeBytes:
		return fmt.Sprintf("%s %s[%d]", info.ctype, name, info.size)
	default:
		return info.ctype + " " + name
	}
}

var cKeywords = func() map[string]bool {
	words := map[string]bool{}
	for _, w := range strings.Fields(`auto bool break case char const constexpr continue default do double
		else enum extern false float for goto if inline int long nullptr register restrict return short
		signed sizeof static static_assert struct switch thread_local true typedef typeof typeof_unqual
		union unsigned void volatile while alignas alignof`) {
		words[w] = true
	}
	return words
}()
