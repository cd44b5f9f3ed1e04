package inject

import (
	"container/list"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/inject/trust"
)

// store keeps objects (function images and shard tables) by their content. It is
// bounded: unpinned objects go, the longest unused first. Its methods
// are called under the runtime's mutex.
type store struct {
	limit  int64
	policy *trust.Policy
	bytes  int64
	byID   map[travel.ID]*object
	codes  map[image.ID]*code
	unused *list.List // of *object, the longest unused at the front
	past   histories  // of the images that are here no more

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

// code is what all copies of an image have in common, whatever their signatures: programs, and what came of its runs. Signatures of
// all copies count together, so an unsigned copy hides no signature.
type code struct {
	img      *image.Image
	copies   int // in the store; 0: it is there no more
	verdict  trust.Verdict
	programs []program      // by entry
	payer    string         // the principal whose load made the first of them
	turnAt   travel.Instant // not before that is it looked again whether native code would be better
	explain  map[forms.Wish]*Explanation

	// origins are whose runs made the function here, or ran it as a derived one, and of which function; the newest is last.
	origins []origin

	// Of a derived function: what it was derived from, and with what. Everything else is its parent's, but for how it was chosen (explain), and for programs of bitcode,
	// into which compilers work the constants.
	parent    *code
	constants string
	owner     string           // the principal that first ran it
	derived   map[string]*code // from this one
	gone      bool             // it can no longer be found there
	loads     int              // that runs wait for

	// What runs came of it since it was put here, by form (image.Form); 0 for those that did not begin.
	history histories
	tally   forms.Past // by this its form is chosen
	failed  uint64
	used    travel.Instant // when the last one ended; 0: never
}

// histories are by form.
type histories [image.ELF + 1]history

// history is what runs in one form came to.
type history struct {
	runs  uint64
	time  time.Duration // of all of them
	bytes uint64        // of their payloads, and of what they replied and sent on
}

func (h *history) add(o history) {
	h.runs += o.runs
	h.time += o.time
	h.bytes += o.bytes
}

// said is the history as statistics have it.
func (h history) said() forms.History { return forms.History{Runs: h.runs, Time: h.time} }

// program is one entry's.
type program struct {
	ready   abi.Program // nil: it is not
	loading bool
	waiting []*load        // for the end of that
	err     error          // why it could not be made ready, …
	until   travel.Instant // … which is believed so long
	lesser  error          // why no better code could be made than ready, which is not tried before until either, …
	again   time.Duration  // … and how long that was put off last
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
// and is sent to a peer that has only the first.
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
		for form := range c.history {
			s.past[form].add(c.history[form])
		}
		c.close()
	}
}

// spare drops an unused image that has programs, the longest unused first: of those that were made for a principal, or, where not only they count, of all. false: there is none.
func (s *store) spare(principal string, only bool) bool {
	for e := s.unused.Front(); e != nil; e = e.Next() {
		if o := e.Value.(*object); o.code != nil && o.code.prepared() && (!only || o.code.payer == principal) {
			s.drop(o)
			s.evicted++
			return true
		}
	}
	return false
}

// payer is the principal that the first program of an image was made for; false: there is none.
func (s *store) payer(image travel.ID) (principal string, ok bool) {
	o := s.byID[image]
	if o == nil || o.code == nil || !o.code.prepared() {
		return "", false
	}
	return o.code.payer, true
}

// prepared reports whether there is a program of the image, or of a function that was derived from it.
func (c *code) prepared() bool {
	if slices.ContainsFunc(c.programs, func(p program) bool { return p.ready != nil }) {
		return true
	}
	for _, d := range c.derived {
		if d.prepared() {
			return true
		}
	}
	return false
}

// maxDerived bounds the derived functions of one image that are kept with programs of their own, but for those that runs wait for, which bindings bound.
const maxDerived = 64

// derive finds or makes what is kept of a function with constants, for a principal.
func (c *code) derive(constants, principal string, now travel.Instant) *code {
	if constants == "" {
		return c
	}
	d := c.derived[constants]
	if d == nil {
		for len(c.derived) >= maxDerived && c.dropDerived() {
		}
		if c.derived == nil {
			c.derived = map[string]*code{}
		}
		d = &code{img: c.img, parent: c, constants: constants, owner: principal, programs: make([]program, len(c.programs))}
		c.derived[constants] = d
	}
	d.used = now
	d.cameFrom(origin{parent: c.img.ID(), principal: principal, at: now})
	return d
}

// dropDerived forgets the derived function that was not used for longest, of the principal that has the most of them; false: runs wait for all.
func (c *code) dropDerived() bool {
	of := map[string]int{}
	for _, d := range c.derived {
		if d.loads == 0 {
			of[d.owner]++
		}
	}
	var last *code
	for _, d := range c.derived {
		if d.loads == 0 && (last == nil || of[d.owner] > of[last.owner] || of[d.owner] == of[last.owner] && d.used < last.used) {
			last = d
		}
	}
	if last == nil {
		return false
	}
	last.close() // what runs in it goes on
	delete(c.derived, last.constants)
	return true
}

// base is the image's own function.
func (c *code) base() *code {
	if c.parent != nil {
		return c.parent
	}
	return c
}

// keeper is the function whose program of an entry is the function's.
func (c *code) keeper(entry int) *code {
	if c.parent != nil && c.img.Entries()[entry].Form != image.LLVMBitcode {
		return c.parent
	}
	return c
}

// at is the program of an entry.
func (c *code) at(entry int) *program { return &c.keeper(entry).programs[entry] }

// id is the function's identity.
func (c *code) id() image.ID {
	if c.parent != nil {
		return c.img.ID().Derived([]byte(c.constants))
	}
	return c.img.ID()
}

// lost reports whether the code can no longer be found.
func (c *code) lost() bool { return c.gone || c.base().copies == 0 }

// close closes the programs.
func (c *code) close() {
	c.gone = true
	for _, d := range c.derived {
		d.close()
	}
	c.derived = nil
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
