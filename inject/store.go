package inject

import (
	"container/list"
	"crypto/sha256"
	"fmt"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/trust"
)

// store keeps objects (function images and shard tables) by their content. It is
// bounded: objects that nobody pins go, the longest unused first. Its methods
// are called under the runtime's mutex.
type store struct {
	limit  int64
	policy *trust.Policy
	bytes  int64
	byID   map[travel.ID]*object
	codes  map[image.ID]*code
	unused *list.List // of *object, the longest unused at the front

	hits, misses, evicted uint64
}

// object is one image or table.
type object struct {
	id      travel.ID
	bytes   []byte
	code    *code // one of the two
	table   *cluster.Table
	verdict trust.Verdict // on this copy's signatures, …
	judged  *trust.Policy // … by this policy
	pins    int
	place   *list.Element // in unused; nil while pinned
}

// code is what all copies of an image have in common, whoever signed them: programs, and what came of its runs. Signatures of
// all copies count together, so a copy without any hides nobody's.
type code struct {
	img      *image.Image
	copies   int // in the store; 0: it is there no more
	verdict  trust.Verdict
	programs []program      // by entry
	turnAt   travel.Instant // not before that is it looked again whether native code would be better
	explain  map[forms.Wish]*Explanation

	// What runs came of it since it was put here, by form (image.Form); 0 for those that did not begin.
	history [image.ELF + 1]history
	failed  uint64
	used    travel.Instant // when the last one ended; 0: never
}

// history is what runs in one form came to.
type history struct {
	runs   uint64
	slices uint64 // of about sliceTime, of all of them
}

// program is one entry's.
type program struct {
	ready   abi.Program // nil: it is not
	loading bool
	waiting []*load        // for the end of that
	err     error          // why it could not be made ready, …
	until   travel.Instant // … which is believed so long
}

func newStore(limit int64, policy *trust.Policy) *store {
	return &store{limit: limit, policy: policy, byID: map[travel.ID]*object{}, codes: map[image.ID]*code{}, unused: list.New()}
}

// parseObject makes an object of bytes from outside: what it is, its content says.
func parseObject(b []byte, p *trust.Policy) (*object, error) {
	if len(b) >= len(image.Magic) && string(b[:len(image.Magic)]) == image.Magic {
		img, err := image.Parse(b)
		if err != nil {
			return nil, err
		}
		return newImage(img, b, p), nil
	}
	t, err := cluster.DecodeTable(b)
	if err != nil {
		return nil, err
	}
	return &object{id: sha256.Sum256(b), bytes: b, table: t}, nil
}

// newImage makes an object of an image whose file is b. It travels under the id of its copy: one with other signatures is another object,
// and is sent to whoever has only the first.
func newImage(img *image.Image, b []byte, p *trust.Policy) *object {
	return &object{id: travel.ID(img.CopyID()), bytes: b, verdict: p.Judge(img), judged: p, code: &code{img: img, programs: make([]program, img.EntryCount())}}
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
	if o.code != nil {
		if o.judged != s.policy { // the policy was replaced since
			o.verdict, o.judged = o.judge(s.policy), s.policy
		}
		s.join(o)
	}
	s.byID[o.id] = o
	s.bytes += size
	o.place = s.unused.PushBack(o)
	return o, nil
}

// join makes an image's object one more copy of its code.
func (s *store) join(o *object) {
	id := o.code.img.ID()
	if c := s.codes[id]; c != nil {
		o.code = c
	} else {
		s.codes[id] = o.code
	}
	o.code.copies++
	o.code.verdict = o.code.verdict.Join(o.verdict)
}

func (s *store) drop(o *object) {
	s.unused.Remove(o.place)
	delete(s.byID, o.id)
	s.bytes -= int64(len(o.bytes))
	c := o.code
	if c == nil {
		return
	}
	if c.copies--; c.copies == 0 {
		delete(s.codes, c.img.ID())
		c.close()
	}
}

// close closes the programs.
func (c *code) close() {
	for i := range c.programs {
		if p := &c.programs[i]; p.ready != nil {
			p.ready.Close()
			p.ready = nil
		}
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
