package llvm

import "container/list"

// memory keeps the objects that were used last, up to a number of bytes. It is not for several goroutines at once.
type memory struct {
	limit   int64
	held    int64
	order   list.List // of *kept, the one used last first
	entries map[string]*list.Element
}

type kept struct {
	key    string
	object []byte
}

func (m *memory) get(key string) ([]byte, bool) {
	e := m.entries[key]
	if e == nil {
		return nil, false
	}
	m.order.MoveToFront(e)
	return e.Value.(*kept).object, true
}

func (m *memory) put(key string, object []byte) {
	if m.entries == nil {
		m.entries = map[string]*list.Element{}
	}
	if m.entries[key] != nil || int64(len(object)) > m.limit {
		return
	}
	m.entries[key] = m.order.PushFront(&kept{key, object})
	for m.held += int64(len(object)); m.held > m.limit; {
		last := m.order.Back()
		old := m.order.Remove(last).(*kept)
		m.held -= int64(len(old.object))
		delete(m.entries, old.key)
	}
}
