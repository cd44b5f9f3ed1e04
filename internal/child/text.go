package child

import "strings"

// maxTextBytes bounds a Text: the beginning has the reason of a panic, the end the last words of a log.
const maxTextBytes = 16 << 10

// gap stands in a Text for what was dropped.
const gap = "\n[...]\n"

// Text is an io.Writer that keeps the beginning and the end of what is written to it, half of maxTextBytes each. The zero value is ready.
type Text struct {
	head, tail []byte
	dropped    bool
}

func (t *Text) Write(p []byte) (int, error) {
	n := min(len(p), maxTextBytes/2-len(t.head))
	t.head = append(t.head, p[:n]...)
	t.tail = append(t.tail, p[n:]...)
	if over := len(t.tail) - maxTextBytes/2; over > 0 {
		t.tail = append(t.tail[:0], t.tail[over:]...)
		t.dropped = true
	}
	return len(p), nil
}

// String is what was kept, without space around it.
func (t *Text) String() string {
	between := ""
	if t.dropped {
		between = gap
	}
	return strings.TrimSpace(string(t.head) + between + string(t.tail))
}
