package travel

// A run whose program is not ready, because it is being compiled or made ready for the run's principal, goes back to the core: it waits as one
// does for code. It holds nothing but its payload, counts as held and not as running, its deadline runs, and it can be
// canceled. Its invocation's turn stays its own.

// AwaitProgram takes back a run that has done nothing yet, until ProgramReady or ProgramFailed; NextRun gives it once more then, with its
// User. It returns false if the branch has ended instead; the run is gone then. Of a run that ends while it waits
// Effects.Unreserve tells.
func (c *Core) AwaitProgram(now Instant, r *Run) bool {
	c.expand()
	if r.ended { // it was stopped meanwhile
		c.Finish(now, r, End{Code: CodeCanceled})
		return false
	}
	c.charge(r, false)
	c.pause(r)
	r.state, r.awaited = runUnready, true
	c.unready.push(&r.inQueue)
	r.tenant(c).unready++
	return true
}

// leaveUnready takes a run off those that wait for their programs.
func (c *Core) leaveUnready(r *Run) {
	r.inQueue.leave()
	r.tenant(c).unready--
}

// ProgramReady lets a run go on that waited for its program.
func (c *Core) ProgramReady(r *Run) {
	c.expand()
	c.leaveUnready(r)
	c.enqueue(r)
}

// ProgramFailed ends the branch of a run that waited for its program.
func (c *Core) ProgramFailed(now Instant, r *Run, code Code, text string) {
	c.expand()
	c.failRun(now, r, code, text)
}
