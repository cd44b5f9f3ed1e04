package fabric

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// queueModel is a frameQueue as one would write it without thinking of speed.
type queueModel struct {
	frames []frame
	max    int
}

func (m *queueModel) bytes() (n int) {
	for _, f := range m.frames {
		n += queueHeadBytes + len(f.body)
	}
	return n
}

type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

func (m *queueModel) push(t fatal, q *frameQueue, id FrameID, head, body []byte) {
	t.Helper()
	fits := m.bytes()+queueHeadBytes+len(head)+len(body) <= m.max
	if got := q.push(id, head, body); got != fits {
		t.Fatalf("push of %d bytes to %d of %d: %v", len(head)+len(body), m.bytes(), m.max, got)
	}
	if fits {
		m.frames = append(m.frames, frame{id, append(bytes.Clone(head), body...)})
	}
	m.check(t, q)
}

func (m *queueModel) mark(t fatal, q *frameQueue) {
	t.Helper()
	behind := len(m.frames) > 0 && m.frames[len(m.frames)-1].id == frameFence
	if added := q.mark(); added == behind {
		t.Fatalf("a mark was added: %v, behind another: %v", added, behind)
	}
	if !behind {
		m.frames = append(m.frames, frame{frameFence, nil})
	}
	m.check(t, q)
}

func (m *queueModel) pop(t fatal, q *frameQueue) {
	t.Helper()
	if len(m.frames) == 0 {
		return
	}
	id, body := q.peek()
	if want := m.frames[0]; id != want.id || !bytes.Equal(body, want.body) {
		t.Fatalf("popped frame %d of %d bytes, want %d of %d", id, len(body), want.id, len(want.body))
	}
	q.pop()
	m.frames = m.frames[1:]
	m.check(t, q)
}

func (m *queueModel) check(t fatal, q *frameQueue) {
	t.Helper()
	if q.n != len(m.frames) || q.bytes() != m.bytes() {
		t.Fatalf("%d frames and %d bytes, want %d and %d", q.n, q.bytes(), len(m.frames), m.bytes())
	}
	if len(q.buf) > 2*(2*m.max+queueHeadBytes)+queueKeepBytes {
		t.Fatalf("the buffer has grown to %d bytes for %d", len(q.buf), m.bytes())
	}
}

func TestFrameQueueModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := frameQueue{max: rapid.IntRange(0, 5000).Draw(t, "max")}
		m := queueModel{max: q.max}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				head, body := rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "head"), rapid.SliceOfN(rapid.Byte(), 0, 600).Draw(t, "body")
				m.push(t, &q, FrameID(rapid.IntRange(1, 4095).Draw(t, "id")), head, body)
			},
			"fence": func(t *rapid.T) { m.mark(t, &q) },
			"pop":   func(t *rapid.T) { m.pop(t, &q) },
		})
	})
}
