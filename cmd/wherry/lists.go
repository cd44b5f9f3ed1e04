package main

// listFlag is a flag whose text is a list with commas between. Given several times, all of them count; a default gives way to the first.
type listFlag struct {
	text *string
	set  bool
}

func newList(to *string, value string) *listFlag {
	*to = value
	return &listFlag{text: to}
}

func (l *listFlag) String() string {
	if l.text == nil { // pflag asks a zero value
		return ""
	}
	return *l.text
}

// Type is what the help calls the value, and has it show a default as it shows other texts.
func (l *listFlag) Type() string { return "string" }

// Set takes one more list.
func (l *listFlag) Set(text string) error {
	if l.set {
		text = *l.text + "," + text
	}
	*l.text, l.set = text, true
	return nil
}
