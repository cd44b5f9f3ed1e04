package fabrictest

import (
	"context"
	"runtime"
	"strconv"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/internal/suite"
)

// roles are what children of the suite do.
func roles(f Factory) map[string]suite.Role {
	return map[string]suite.Role{
		"serve": func(p *suite.Parent, _ []string) error { return childServe(f, p) },
		"send":  func(p *suite.Parent, args []string) error { return childSend(f, p, args) },
		"ring":  func(p *suite.Parent, args []string) error { return childRing(f, p, args) },
	}
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// lent is what a child that serves says of itself.
type lent struct {
	Addr string
	Keys [2][]byte // of its whole segment and of a part
}

// childServe lends a segment, echoes messages, and says how often it allocated whenever it is asked, with any word.
func childServe(f Factory, p *suite.Parent) error {
	n, err := newNode(f, func(c *fabric.Config) { c.Name = "child" })
	if err != nil {
		return err
	}
	defer n.Close()
	serveEcho(n)
	seg, err := n.NewSegment(2<<20, fabric.Writable)
	if err != nil {
		return err
	}
	whole, err := seg.Key(fabric.RightsAll)
	if err != nil {
		return err
	}
	part, err := seg.KeyRange(64, 1<<20+4096, fabric.RightsAll)
	if err != nil {
		return err
	}
	if err := p.Encode(lent{n.addr, [2][]byte{whole.Append(nil), part.Append(nil)}}); err != nil {
		return err
	}
	for word := ""; p.Decode(&word) == nil; {
		if err := p.Encode(mallocs()); err != nil {
			return err
		}
	}
	return nil
}

// childSend sends numbered messages to an address.
func childSend(f Factory, p *suite.Parent, args []string) error {
	n, err := newNode(f, func(c *fabric.Config) { c.Name = "sender " + args[1] })
	if err != nil {
		return err
	}
	defer n.Close()
	who, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	count, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ep, err := n.Dial(ctx, args[0])
	if err != nil {
		return err
	}
	for i := range count {
		if err := ep.Send(ctx, idData, numbered(i, 8), append(make([]byte, 0, 300), byte(who))[:1+i%300]); err != nil {
			return err
		}
	}
	if err := ep.Flush(ctx); err != nil {
		return err
	}
	return p.Encode("sent")
}
