package part

import (
	"hash/maphash"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// lexicon numbers distinct words, in the order in which they come. It is a hash table with linear probing of at most half its places, and has no
// pointers for the garbage collector to follow.
type lexicon struct {
	seed   maphash.Seed
	places []place // a power of two
	starts []byte  // of the words in text, and its end: 32 bits each, as Arrow has them
	text   []byte
}

// place is a word's, if its number, from 1, is not 0.
type place struct{ hash, number uint32 }

// firstPlaces are those of a lexicon without words.
const firstPlaces = 1 << 10

func newLexicon() *lexicon {
	return &lexicon{seed: maphash.MakeSeed(), places: make([]place, firstPlaces), starts: make([]byte, 4)}
}

// words is how many there are.
func (x *lexicon) words() int { return len(x.starts)/4 - 1 }

// word is one of them.
func (x *lexicon) word(n uint32) []byte {
	return x.text[le.Uint32(x.starts[4*n:]):le.Uint32(x.starts[4*n+4:])]
}

// number returns a word's number; ok is false where there would be too many words, or too much text.
func (x *lexicon) number(word []byte) (n uint16, ok bool) {
	hash := uint32(maphash.Bytes(x.seed, word))
	mask := uint32(len(x.places) - 1)
	at := hash & mask
	for ; x.places[at].number != 0; at = (at + 1) & mask {
		if p := x.places[at]; p.hash == hash && string(x.word(p.number-1)) == string(word) {
			return uint16(p.number - 1), true
		}
	}
	count := x.words()
	if count == MaxDictionary || len(x.text)+len(word) > MaxTextBytes {
		return 0, false
	}
	x.text = append(x.text, word...)
	x.starts = le.AppendUint32(x.starts, uint32(len(x.text)))
	x.places[at] = place{hash, uint32(count) + 1}
	if 2*(count+1) > len(x.places) {
		x.grow()
	}
	return uint16(count), true
}

// grow doubles the places.
func (x *lexicon) grow() {
	old := x.places
	x.places = make([]place, 2*len(old))
	mask := uint32(len(x.places) - 1)
	for _, p := range old {
		if p.number == 0 {
			continue
		}
		at := p.hash & mask
		for x.places[at].number != 0 {
			at = (at + 1) & mask
		}
		x.places[at] = p
	}
}

// array is the words in the order of their numbers.
func (x *lexicon) array() arrow.Array {
	data := array.NewData(arrow.BinaryTypes.String, x.words(), []*memory.Buffer{nil, memory.NewBufferBytes(x.starts), memory.NewBufferBytes(x.text)}, nil, 0, 0)
	defer data.Release()
	return array.MakeFromData(data)
}
