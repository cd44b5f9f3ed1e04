// Command outside is a program in a module of its own that uses wherry as a
// library: one process, two elements, a function sent from one to the other.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/tcp"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/wasm"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

// station is an element with a runtime.
func station(name string, engines ...abi.Engine) (*fabric.Element, *inject.Runtime, error) {
	t, err := tcp.New(tcp.Config{})
	if err != nil {
		return nil, nil, err
	}
	el, err := fabric.New(fabric.Config{Name: name, Transports: []fabric.Transport{t}, Auth: everybody{}})
	if err != nil {
		return nil, nil, err
	}
	rt, err := inject.NewRuntime(el, inject.Config{Engines: engines})
	return el, rt, err
}

// everybody admits whoever dials, which only a program that talks to itself may do.
type everybody struct{}

func (everybody) Self() (string, []byte) { return "", nil }
func (everybody) Lookup(string) ([]byte, fabric.Principal, bool) {
	return nil, fabric.Principal{}, false
}
func (everybody) Anonymous(fabric.PeerCred, bool) (fabric.Principal, bool) {
	return fabric.Principal{Name: "self", Caps: uint32(cluster.CapsAll)}, true
}

func run() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	engine, err := wasm.New(wasm.Config{})
	if err != nil {
		return err
	}
	defer engine.Close()
	far, _, err := station("far", wasm.Runner{Engine: engine})
	if err != nil {
		return err
	}
	defer far.Close()
	addr, err := far.Listen("tcp://127.0.0.1:0")
	if err != nil {
		return err
	}
	near, rt, err := station("near")
	if err != nil {
		return err
	}
	defer near.Close()
	ep, err := near.Dial(ctx, addr)
	if err != nil {
		return err
	}
	f, err := rt.Prepare(xrdma.Echo(), nil)
	if err != nil {
		return err
	}
	defer f.Close()
	reply, err := f.Do(ctx, inject.Root{To: ep, Payload: []byte("there and back")}, nil)
	if err == nil {
		fmt.Printf("%s answered: %s\n", ep.Name(), reply)
	}
	return err
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
