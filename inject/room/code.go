package room

import (
	"fmt"
	"sync"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/internal/share"
)

// Code is the account of what an engine has loaded: programs and the bytes of memory that their code takes, of all and of each principal. One
// principal has at most its share of either. Its methods may be called from any goroutine.
type Code struct {
	engine string // before what it says
	most   loaded

	mu  sync.Mutex
	all loaded
	by  map[string]loaded
}

type loaded struct {
	programs int
	bytes    uint64
}

// NewCode makes an account with so much room.
func NewCode(engine string, programs int, bytes uint64) *Code {
	return &Code{engine: engine, most: loaded{programs, bytes}, by: map[string]loaded{}}
}

// Admit charges a principal for a program. The error is abi.ErrShareBusy where the principal's share is taken, else abi.ErrEngineBusy.
func (c *Code) Admit(principal string, bytes uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.admit(principal, bytes)
}

// Change charges a principal other bytes for a program than was. Nobody can take what the program had meanwhile; after an error it still has that.
func (c *Code) Change(principal string, was, bytes uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(principal, loaded{-1, -was})
	err := c.admit(principal, bytes)
	if err != nil {
		c.add(principal, loaded{1, was})
	}
	return err
}

func (c *Code) admit(principal string, bytes uint64) error {
	own := c.by[principal]
	if err := c.room(own, loaded{share.Of(c.most.programs), share.Of(c.most.bytes)}, bytes, fmt.Sprintf(" for %q", principal), abi.ErrShareBusy); err != nil {
		return err
	}
	if err := c.room(c.all, c.most, bytes, " for all", abi.ErrEngineBusy); err != nil {
		return err
	}
	c.add(principal, loaded{1, bytes})
	return nil
}

// room says why there is none beside what is loaded; nil: there is.
func (c *Code) room(there, most loaded, more uint64, whose string, busy error) error {
	switch {
	case there.programs >= most.programs:
		return fmt.Errorf("%s: %d programs are loaded%s, as many as may be; unload some: %w", c.engine, there.programs, whose, busy)
	case there.bytes+more > most.bytes:
		return fmt.Errorf("%s: the code of %d programs%s takes %d bytes, and this one's %d more, of %d; unload some, or raise CodeBytes: %w", c.engine, there.programs, whose, there.bytes, more, most.bytes, busy)
	}
	return nil
}

// Drop gives back what Admit charged.
func (c *Code) Drop(principal string, bytes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(principal, loaded{-1, -bytes})
}

func (c *Code) add(principal string, l loaded) {
	own := c.by[principal]
	own = loaded{own.programs + l.programs, own.bytes + l.bytes}
	c.all = loaded{c.all.programs + l.programs, c.all.bytes + l.bytes}
	if c.by[principal] = own; own.programs == 0 {
		delete(c.by, principal)
	}
}

// Usage is what is loaded, of all principals.
func (c *Code) Usage() (programs int, bytes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all.programs, c.all.bytes
}
