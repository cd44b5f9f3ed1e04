package exchange

// Callee is the book of the peer's calls on one endpoint. T is the record of
// one that runs.
type Callee[T any] struct {
	seen    seen
	limit   int
	running map[ID]T
	held    int // of them, those that have run

	came, ended, told uint64 // one-way requests: that came; that have ended; of how many ends the caller was told
}

// tellEvery is how many one-way requests end before the caller is told: fewer messages, and room in the window for what is
// sent meanwhile.
const tellEvery = MaxOneWay / 4

// ArriveOneWay takes note of a one-way request that is to be handled. It reports whether its caller has kept to MaxOneWay.
func (c *Callee[T]) ArriveOneWay() bool {
	c.came++
	return c.came-c.ended <= MaxOneWay
}

// TellRest is what to tell the caller after some time in which too few have ended to tell it of each tellEvery; tell is
// false if it knows of all.
func (c *Callee[T]) TellRest() (total uint64, tell bool) {
	tell = c.told != c.ended
	c.told = c.ended
	return c.ended, tell
}

// EndOneWay takes note that one has ended: it has run, or never will. If it is time to tell the caller,
// total is what to tell.
func (c *Callee[T]) EndOneWay() (total uint64, tell bool) {
	c.ended++
	if c.ended-c.told < tellEvery {
		return 0, false
	}
	c.told = c.ended
	return c.ended, true
}

// NewCallee makes a book for at most limit calls that run at once. Calls that end
// before anything else is looked at are not counted: they need not Begin.
func NewCallee[T any](limit int) Callee[T] { return Callee[T]{limit: limit, seen: seen{low: 1}} }

// Arrive takes note of a request's number; low is the caller's word that no
// lower one is waiting. It reports whether the request is to be handled: false for one that
// came before, that was cancelled before it came, or that its caller has given up.
func (c *Callee[T]) Arrive(id ID, low uint64) bool { return c.seen.add(id.Number(), low) }

// Begin enters a call that runs; false if the peer has as many as it may.
func (c *Callee[T]) Begin(id ID, record T) bool {
	if c.Full() {
		return false
	}
	c.Keep(id, record)
	return true
}

// Full reports whether the peer has as many calls running as it may.
func (c *Callee[T]) Full() bool { return len(c.running)-c.held >= c.limit }

// Keep enters a call that has run and cannot be refused any more. It counts, also where that is
// more than the limit.
func (c *Callee[T]) Keep(id ID, record T) {
	if c.running == nil {
		c.running = map[ID]T{}
	}
	c.running[id] = record
}

// Hold enters a call that has run and whose answer waits here. It can be found as one that runs, and does not count.
func (c *Callee[T]) Hold(id ID, record T) {
	c.Keep(id, record)
	c.held++
}

// Find is the record of a call that runs.
func (c *Callee[T]) Find(id ID) (record T, running bool) {
	record, running = c.running[id]
	return record, running
}

// Cancel takes the caller's word that it wants no answer. If the call runs, its
// record is returned; if its request has not come, it will not be handled.
func (c *Callee[T]) Cancel(id ID) (record T, running bool) {
	if record, running = c.running[id]; !running {
		c.seen.add(id.Number(), 0)
	}
	return record, running
}

// End strikes a call; held says that it is one that Hold has entered.
func (c *Callee[T]) End(id ID, held bool) {
	delete(c.running, id)
	if held {
		c.held--
	}
}

// Running is the number of calls that run, or whose answers wait.
func (c *Callee[T]) Running() int { return len(c.running) }

// Each tells fn of all that run.
func (c *Callee[T]) Each(fn func(ID, T)) {
	for id, r := range c.running {
		fn(id, r)
	}
}
