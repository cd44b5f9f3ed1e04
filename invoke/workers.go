package invoke

import (
	"fmt"
	"maps"
	"strconv"

	"github.com/wherry-fabric/wherry/inject/image"
)

// WorkersParam is the parameter by which a function that starts by chunk hears how many workers each element has (Options.Workers). It is filled in.
const WorkersParam = image.WorkersParam

// checkWorkers finds several workers of a call that has no rows to share among them.
func (r *Request) checkWorkers() error {
	name := r.Image.Name()
	switch n := r.Options.Workers; {
	case n <= 1:
	case r.Image.Call().Start != image.StartChunk:
		return fmt.Errorf("%w: %d workers: %s has one at each node, as it does not share a node's rows among several, or its manifest would say \"start\": %q: leave --workers out", ErrRequest, n, name, image.StartChunk)
	case r.Table == nil || r.Element != nil:
		return fmt.Errorf("%w: %d workers: those of %s share the rows that each node has of a dataset: run it on one (--on NAME), or leave --workers out", ErrRequest, n, name)
	case !r.Image.Call().SharesRows():
		return fmt.Errorf("%w: %d workers: each would read all of its node's rows, and they would count %[2]d times: %[3]s neither reads columns by wherry_chunk_next, which shares them (if it does, build it anew with this wherry_columns.h), nor has a parameter %[4]q of an integer type, by which it would share them itself: leave --workers out", ErrRequest, n, name, WorkersParam)
	}
	return nil
}

// tellWorkers fills in how many workers there are. Another number would leave rows out, or count them twice.
func (r *Request) tellWorkers(m *image.Call) error {
	if m.Start != image.StartChunk || !m.HearsWorkers() {
		return nil
	}
	text := strconv.Itoa(max(int(r.Options.Workers), 1))
	if given, is := r.Args[WorkersParam]; is && given != text {
		return fmt.Errorf("%w: %s: %s is %.40q, and each node has %s: ask for as many with --workers, and leave --arg %[3]s out", ErrRequest, m.Name, WorkersParam, given, text)
	}
	args := maps.Clone(r.Args)
	if args == nil {
		args = map[string]string{}
	}
	args[WorkersParam] = text
	r.Args = args
	return nil
}
