package xrdma

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
)

const (
	// MaxDependents is how many vertices one call of the function dependents counts for.
	MaxDependents = 64
	// MaxInsideList is how many vertices of a set one payload of the function
	// inside carries: 32 KiB.
	MaxInsideList = 8 << 10
	// MaxTopDegrees is the most rows that the function topdeg ranks.
	MaxTopDegrees = 4000

	listBinary = 1 << 31 // of inside: the set is u32s and no text

	rowsHeadBytes = 8
	strRefBytes   = 8
	degreeBytes   = 8 // of a Degree in a reply
)

func words(v ...uint32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, w := range v {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

// PathArgs is the payload that starts the function path, or, without to, level.
// It goes to every element. maxDepth 0 is any distance.
func PathArgs(from, to uint32, d Direction, maxDepth uint32) []byte {
	return words(from, to, uint32(d), maxDepth)
}

// directElements is the most elements that send each other directly in a round (src/rounds.h).
const directElements = 8

// Round says what one round of path, level and dependents takes: messages of all elements, if no list is long, and how
// many of them follow one another. Of more than eight elements some may sleep, and it takes fewer.
func Round(elements int) (messages, steps int) {
	if elements <= directElements {
		return elements * (elements - 1), 1
	}
	width := 1
	for width*width < elements {
		width++
	}
	groups := (elements + width - 1) / width
	return 2*(elements-groups) + groups*(groups-1), 3
}

// AppendPath puts one part of a path's result into place: path[i] is the vertex i edges from the start.
func AppendPath(path []uint32, part []byte) ([]uint32, error) {
	rows, err := rowsOfPart(part, 8)
	if err != nil {
		return path, err
	}
	for ; len(rows) > 0; rows = rows[8:] {
		step, vertex := binary.LittleEndian.Uint32(rows), binary.LittleEndian.Uint32(rows[4:])
		if uint64(step) > uint64(len(part)+4*len(path)) { // parts come from the path's end, each full
			return path, fmt.Errorf("%w: step %d of a path comes too early", ErrReply, step)
		}
		for len(path) <= int(step) {
			path = append(path, 0)
		}
		path[step] = vertex
	}
	return path, nil
}

// TopArgs is the payload that starts the function topdeg: the k vertices with
// the most edges of a direction, of each element. It goes to every element.
func TopArgs(k uint32, d Direction) []byte { return words(k, uint32(d), 0) }

// Degree is a vertex and how many edges it has.
type Degree struct{ Vertex, Edges uint32 }

// AppendTop appends what one element replied to TopArgs.
func AppendTop(list []Degree, part []byte) ([]Degree, error) {
	rows, err := rowsOfPart(part, degreeBytes)
	if err != nil {
		return list, err
	}
	return AppendDegrees(list, rows)
}

// DegreesArgs is the payload that starts the function degrees, whose parts are
// read with AppendDegrees. It goes to every element.
func DegreesArgs(d Direction) []byte { return words(uint32(d)) }

// AppendDegrees appends one part of the result of degrees. A branch's parts
// together have its element's vertices, in their order.
func AppendDegrees(list []Degree, part []byte) ([]Degree, error) {
	if len(part)%degreeBytes != 0 {
		return list, fmt.Errorf("%w: a list of vertices and their numbers of edges has %d bytes", ErrReply, len(part))
	}
	list = slices.Grow(list, len(part)/degreeBytes)
	for ; len(part) > 0; part = part[degreeBytes:] {
		list = append(list, Degree{binary.LittleEndian.Uint32(part), binary.LittleEndian.Uint32(part[4:])})
	}
	return list, nil
}

// DependentsArgs is the payload that starts the function dependents. It goes to
// every element; vertices are at most MaxDependents.
func DependentsArgs(d Direction, vertices []uint32) []byte {
	var list []byte
	for i, v := range vertices {
		if i > 0 {
			list = append(list, ',')
		}
		list = strconv.AppendUint(list, uint64(v), 10)
	}
	return append(words(uint32(d), 4+strRefBytes, uint32(len(list))), list...)
}

// AddDependents adds one part of the result of dependents: for each vertex, how many of an element's
// vertices reach it, itself included. It returns the rounds that it took; 0 if the part has no rows.
func AddDependents(counts map[uint32]uint64, part []byte) (rounds uint32, err error) {
	rows, err := rowsOfPart(part, 16)
	if err != nil {
		return 0, err
	}
	for ; len(rows) > 0; rows = rows[16:] {
		counts[binary.LittleEndian.Uint32(rows)] += binary.LittleEndian.Uint64(rows[8:])
		rounds = binary.LittleEndian.Uint32(rows[4:])
	}
	return rounds, nil
}

// InsideArgs are the payloads that start the function inside. All of them go to every element.
func InsideArgs(d Direction, set []uint32) [][]byte {
	lists := max(1, (len(set)+MaxInsideList-1)/MaxInsideList)
	out := make([][]byte, lists)
	for i := range out {
		part := set[:min(len(set), MaxInsideList)]
		set = set[len(part):]
		out[i] = append(words(uint32(d), uint32(lists)|listBinary, 8+strRefBytes, uint32(4*len(part))), words(part...)...)
	}
	return out
}

// InsideResult is what one part of the result of inside adds.
func InsideResult(part []byte) (uint64, error) {
	rows, err := rowsOfPart(part, 8)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	return binary.LittleEndian.Uint64(rows), nil
}

// rowsOfPart checks a part's head and returns its rows, records of size bytes.
func rowsOfPart(part []byte, size int) ([]byte, error) {
	if len(part) < rowsHeadBytes || uint64(len(part)-rowsHeadBytes) != uint64(binary.LittleEndian.Uint32(part))*uint64(size) {
		return nil, fmt.Errorf("%w: a part of %d bytes is no list of records of %d bytes", ErrReply, len(part), size)
	}
	return part[rowsHeadBytes:], nil
}
