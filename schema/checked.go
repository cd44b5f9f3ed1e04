package schema

// Checked is a schema that was found valid, with its layout, for callers that encode or decode by it again and again:
// to find out takes longer than a small call's arguments. The schema must not change as long as it is in use. Any
// number of goroutines may use it.
type Checked struct {
	schema *Schema
	layout Layout
}

// CheckedParams checks a function's parameters as ValidateParams does.
func (s *Schema) CheckedParams() (*Checked, error) {
	if err := s.ValidateParams(); err != nil {
		return nil, err
	}
	return &Checked{s, s.place()}, nil
}

// CheckedResult checks a function's result rows as ValidateResult does.
func (s *Schema) CheckedResult() (*Checked, error) {
	if err := s.ValidateResult(); err != nil {
		return nil, err
	}
	return &Checked{s, s.place()}, nil
}

// Schema is the schema that was checked.
func (c *Checked) Schema() *Schema { return c.schema }

// Layout is where the fields lie. It is shared, and must not be changed.
func (c *Checked) Layout() *Layout { return &c.layout }
