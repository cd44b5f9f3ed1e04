package inject

import (
	"container/list"
	"crypto/sha256"
	"fmt"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
)

// store keeps objects (function images and shard tables) by their content. It is
// bounded: objects that nobody pins go, the longest unused first. Its methods
// are called under the runtime's mutex.
type store struct {
	limit  int64
	bytes  int64
	byID   map[travel.ID]*object
	unused *list.List // of *object, the longest unused at the front

	hits, misses, evicted uint64
}

// object is one image or table.
type object struct {
	id    travel.ID
	bytes []byte
	img   *image.Image // one of the two
	table *cluster.Table
	pins  int
	place *list.Element // in unused; nil while pinned
	prog  abi.Program   // the image's, once loaded here

	// What runs came of the image since it was put here.
	runs, failed uint64
	used         travel.Instant // when the last one ended; 0: never
}

func newStore(limit int64) *store {
	return &store{limit: limit, byID: map[travel.ID]*object{}, unused: list.New()}
}

// parseObject makes an object of bytes from outside: what it is, its content says.
func parseObject(b []byte) (*object, error) {
	if len(b) >= len(image.Magic) && string(b[:len(image.Magic)]) == image.Magic {
		img, err := image.Parse(b)
		if err != nil {
			return nil, err
		}
		return &object{id: travel.ID(img.ID()), bytes: b, img: img}, nil
	}
	t, err := cluster.DecodeTable(b)
	if err != nil {
		return nil, err
	}
	return &object{id: sha256.Sum256(b), bytes: b, table: t}, nil
}

// add keeps an object, evicting others if it must.
func (s *store) add(o *object) (*object, error) {
	if old := s.byID[o.id]; old != nil {
		return old, nil
	}
	size := int64(len(o.bytes))
	if size > s.limit {
		return nil, fmt.Errorf("%w: an object of %d bytes, the code cache holds %d", travel.ErrLimit, size, s.limit)
	}
	for s.bytes+size > s.limit {
		front := s.unused.Front()
		if front == nil {
			return nil, fmt.Errorf("%w: the code cache's %d bytes are all in use", travel.ErrLimit, s.limit)
		}
		s.drop(front.Value.(*object))
		s.evicted++
	}
	s.byID[o.id] = o
	s.bytes += size
	o.place = s.unused.PushBack(o)
	return o, nil
}

func (s *store) drop(o *object) {
	s.unused.Remove(o.place)
	delete(s.byID, o.id)
	s.bytes -= int64(len(o.bytes))
	if o.prog != nil {
		o.prog.Close()
		o.prog = nil
	}
}

// Get is an object's bytes.
func (s *store) Get(id travel.ID) []byte {
	if o := s.byID[id]; o != nil {
		s.hits++
		return o.bytes
	}
	s.misses++
	return nil
}

// Pin keeps an object.
func (s *store) Pin(id travel.ID) bool {
	o := s.byID[id]
	if o == nil {
		s.misses++
		return false
	}
	s.hits++
	if o.pins++; o.pins == 1 {
		s.unused.Remove(o.place)
		o.place = nil
	}
	return true
}

// Unpin undoes one Pin.
func (s *store) Unpin(id travel.ID) {
	o := s.byID[id]
	if o.pins--; o.pins == 0 {
		o.place = s.unused.PushBack(o)
	}
}
