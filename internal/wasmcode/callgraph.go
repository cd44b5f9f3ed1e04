package wasmcode

// callGraph decides which functions charge for themselves. Most do not: what
// they cost outside of loops is added to the region of the caller that the call is in, so
// that only loops are charged. That ends at functions that
//
//   - are on a cycle of calls: in every cycle, the function that a depth-first
//     search meets again;
//   - may be called indirectly (the decoder has marked those);
//   - cost more than entryCost, callees included, or would have a caller's region cost more: so sums stay small.
//
// Every unbounded execution passes a loop head or one of these again and again.
func (m *Module) callGraph() {
	for _, e := range m.elems {
		for _, f := range e.funcs {
			m.chargeEntry(int(f))
		}
		for _, x := range e.exprs {
			m.chargeEntry(x.function)
		}
	}
	for _, g := range m.globals {
		m.chargeEntry(g.init.function)
	}
	const (
		unseen = iota
		open
		done
	)
	type visit struct{ fn, next int }
	state := make([]uint8, len(m.bodies))
	var stack []visit
	for root := range m.bodies {
		if state[root] != unseen {
			continue
		}
		state[root] = open
		stack = append(stack[:0], visit{fn: root})
		for len(stack) > 0 {
			v := &stack[len(stack)-1]
			b := &m.bodies[v.fn]
			if v.next == len(b.calls) {
				b.settle(m.bodies)
				m.StackBytes = max(m.StackBytes, uint64(b.stack))
				state[v.fn] = done
				stack = stack[:len(stack)-1]
				continue
			}
			callee := int(b.calls[v.next].callee)
			v.next++
			switch state[callee] {
			case open:
				m.bodies[callee].charge = true
				m.Recursive = true
			case unseen:
				state[callee] = open
				stack = append(stack, visit{fn: callee})
			}
		}
	}
}

func (m *Module) chargeEntry(f int) {
	if i := f - len(m.imports); f >= 0 && i >= 0 {
		m.bodies[i].charge = true
	}
}

// settle adds what b calls to its regions, now that its callees are settled.
func (b *body) settle(bodies []body) {
	deepest := 0
	for _, c := range b.calls {
		callee := &bodies[c.callee]
		deepest = max(deepest, callee.stack)
		switch {
		case callee.charge:
		case b.costs[c.region]+callee.costs[0] > entryCost: // too much to pay at once: no caller pays for it any more
			callee.charge = true
		default:
			b.costs[c.region] += callee.costs[0]
		}
	}
	b.calls = nil
	b.stack = min(b.stack+deepest, mostOfStack)
	b.charge = b.charge || b.costs[0] > entryCost
}
