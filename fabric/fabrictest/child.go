package fabrictest

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"github.com/wherry-fabric/wherry/fabric"
)

// childMark is the argument that makes the test binary a child of the suite.
const childMark = "fabrictest-child"

// beChild plays the role that the arguments name, and ends the process; it
// returns false if they name none.
func beChild(f Factory) bool {
	args := flag.Args()
	if len(args) < 2 || args[0] != childMark {
		return false
	}
	role := map[string]func(Factory, []string) error{"serve": childServe, "send": childSend, "ring": childRing}[args[1]]
	err := fmt.Errorf("no role %q", args[1])
	if role != nil {
		err = role(f, args[2:])
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s %s: %v\n", childMark, args[1], err)
		os.Exit(1)
	}
	os.Exit(0)
	return true
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// childServe lends a segment, echoes messages and answers questions on its
// standard input until that ends.
func childServe(f Factory, _ []string) error {
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
	fmt.Printf("%s %x %x\n", n.addr, whole.Append(nil), part.Append(nil))
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(mallocs())
	}
	return nil
}

// childSend sends numbered messages to an address.
func childSend(f Factory, args []string) error {
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
	fmt.Println("sent")
	return nil
}
