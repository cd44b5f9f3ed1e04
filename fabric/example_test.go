package fabric_test

import (
	"context"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/tcp"
)

// Ids of the example's messages: the question has a normal id, its answer a
// reserved one.
const (
	idLend fabric.FrameID = fabric.FirstMessageID
	idKey  fabric.FrameID = fabric.FirstReservedID
)

func element(name string) *fabric.Element {
	tr, err := tcp.New(tcp.Config{})
	if err != nil {
		log.Fatal(err)
	}
	el, err := fabric.New(fabric.Config{Name: name, Transports: []fabric.Transport{tr}})
	if err != nil {
		log.Fatal(err)
	}
	return el
}

// One element asks another for memory, with a message; puts bytes there, counts,
// and gets them back.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	// The lender answers a question with the key to a segment.
	lender := element("lender")
	defer lender.Close()
	seg, err := lender.NewSegment(1<<20, fabric.Writable)
	if err != nil {
		log.Fatal(err)
	}
	lender.Handle(idLend, func(m fabric.Message) {
		fmt.Printf("%s asks for %s\n", m.From.Name(), m.Body)
		k, err := seg.Key(fabric.RightsAll)
		if err != nil {
			log.Fatal(err)
		}
		m.From.Post(idKey, nil, k.Append(nil))
	})
	addr, err := lender.Listen("tcp://127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}

	// The borrower asks, and waits for the answer.
	borrower := element("borrower")
	defer borrower.Close()
	var key atomic.Pointer[fabric.Key]
	borrower.Handle(idKey, func(m fabric.Message) {
		if k, err := fabric.DecodeKey(m.Body); err == nil {
			key.Store(&k)
		}
	})
	ep, err := borrower.Dial(ctx, addr)
	if err != nil {
		log.Fatal(err)
	}
	if err := ep.Send(ctx, idLend, nil, []byte("memory")); err != nil {
		log.Fatal(err)
	}
	if err := borrower.WaitFor(ctx, func() bool { return key.Load() != nil }); err != nil {
		log.Fatal(err)
	}

	// From here on the lender's program does nothing any more.
	mem, err := ep.Import(ctx, *key.Load())
	if err != nil {
		log.Fatal(err)
	}
	if err := mem.Put(ctx, []byte("a wherry is a light boat"), 64); err != nil {
		log.Fatal(err)
	}
	for range 3 {
		if _, err := mem.Atomic(ctx, fabric.FetchAdd(14), 8, 0); err != nil {
			log.Fatal(err)
		}
	}
	sum, err := mem.Atomic(ctx, fabric.FetchAdd(0), 8, 0)
	if err != nil {
		log.Fatal(err)
	}
	text := make([]byte, 24)
	if err := mem.Get(ctx, text, 64); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, %d\n", text, sum)
	// Output:
	// borrower asks for memory
	// a wherry is a light boat, 42
}
