package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/dataset"
	"github.com/wherry-fabric/wherry/dataset/batch"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/invoke"
	"github.com/wherry-fabric/wherry/rpc"
)

// TestZeroValues: what a program leaves out is an error that says so, or has a usual value; it never panics.
func TestZeroValues(t *testing.T) {
	b := newBench(t, "shm", "n1")
	c := b.connect(t, tokenOwner)
	const text = "a\n1\n2\n"
	o := dataset.Options{Format: dataset.CSV, Header: true, Schema: parseSchema(t, "a:u8")}
	if _, err := c.Load(t.Context(), LoadSpec{Name: "log", Input: dataset.NewText("log", []byte(text)), Options: o}, nil); err != nil {
		t.Fatal(err)
	}
	log, err := c.Table(t.Context(), "log", "")
	if err != nil {
		t.Fatal(err)
	}
	ep, err := c.Endpoint(t.Context(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	echo := xrdma.Echo()
	run := func(ctx context.Context, r invoke.Request) error {
		_, err := invoke.Run(ctx, c.Runtime(), r)
		return err
	}
	start := func(ctx context.Context, table *cluster.Table, roots ...inject.Root) error {
		f, err := c.Runtime().Prepare(echo, table)
		if err != nil {
			return err
		}
		defer f.Close()
		fut, err := f.Start(ctx, roots, inject.Options{})
		if err == nil {
			_, err = fut.Wait(ctx)
		}
		return err
	}
	var method rpc.Method[string, string]
	for name, call := range map[string]func(ctx context.Context) error{
		"invoke.Run says Image":                   func(ctx context.Context) error { return run(ctx, invoke.Request{}) },
		"invoke.Run with a table says Image":      func(ctx context.Context) error { return run(ctx, invoke.Request{Table: log}) },
		"invoke.Run with a zero image says Image": func(ctx context.Context) error { return run(ctx, invoke.Request{Image: &image.Image{}, Table: log}) },
		"invoke.Run with an image says dataset":   func(ctx context.Context) error { return run(ctx, invoke.Request{Image: echo}) },
		"invoke.Run with a zero table says table": func(ctx context.Context) error { return run(ctx, invoke.Request{Image: echo, Table: &cluster.Table{}}) },
		"invoke.Run with no runtime says runtime": func(ctx context.Context) error {
			_, err := invoke.Run(ctx, nil, invoke.Request{Image: echo, Table: log})
			return err
		},
		"invoke.CheckFormat says Image":        func(context.Context) error { return invoke.CheckFormat(nil, batch.CSV) },
		"Answer.Write says format":             func(context.Context) error { return (&invoke.Answer{Schema: &log.Schema}).Write(io.Discard, "") },
		"Prepare says image":                   func(context.Context) error { _, err := c.Runtime().Prepare(nil, nil); return err },
		"Prepare of a zero image says image":   func(context.Context) error { _, err := c.Runtime().Prepare(&image.Image{}, nil); return err },
		"Prepare with a zero table says table": func(context.Context) error { _, err := c.Runtime().Prepare(echo, &cluster.Table{}); return err },
		"Start of nothing says Roots":          func(ctx context.Context) error { return start(ctx, log) },
		"Start with a zero root is fine":       func(ctx context.Context) error { return start(ctx, log, inject.Root{}) },
		"NewRuntime says element":              func(context.Context) error { _, err := inject.NewRuntime(nil, inject.Config{}); return err },
		"NewRuntime with no engine says engine": func(context.Context) error {
			_, err := inject.NewRuntime(c.Element(), inject.Config{Engines: []abi.Engine{nil}})
			return err
		},
		"rpc.New says element":          func(context.Context) error { _, err := rpc.New(nil, rpc.Config{}); return err },
		"Call says endpoint":            func(ctx context.Context) error { _, err := c.RPC().Call(ctx, nil, "x", nil); return err },
		"Call of no name says no":       func(ctx context.Context) error { _, err := c.RPC().Call(ctx, ep, "", nil); return err },
		"Start of a call says endpoint": func(ctx context.Context) error { _, err := c.RPC().Start(ctx, nil, "", nil); return err },
		"Send says endpoint":            func(ctx context.Context) error { return c.RPC().Send(ctx, nil, "", nil) },
		"a zero Future says used": func(ctx context.Context) error {
			var f rpc.Future
			f.Cancel()
			<-f.Done()
			f.Forget()
			_, err := f.Wait(ctx)
			return err
		},
		"a zero inject.Future says Start":   func(ctx context.Context) error { return endFuture(ctx, &inject.Future{}) },
		"a nil inject.Future says Start":    func(ctx context.Context) error { return endFuture(ctx, nil) },
		"a zero Method says Define":         func(ctx context.Context) error { _, err := method.Call(ctx, c.RPC(), ep, ""); return err },
		"a zero Method's Serve says Define": func(context.Context) error { return method.Serve(c.RPC(), nil, rpc.Options{Inline: true}) },
		"Register says name":                func(context.Context) error { return c.RPC().Register("", nil, rpc.Options{Inline: true}) },
		"Expose says right":                 func(context.Context) error { _, err := c.RPC().Expose(0, rpc.BulkOptions{}); return err },
		"Expose of a zero span says span": func(context.Context) error {
			_, err := c.RPC().Expose(fabric.RightRead, rpc.BulkOptions{}, rpc.Span{})
			return err
		},
		"Pull of nothing says outside": func(ctx context.Context) error {
			_, err := c.RPC().Pull(ctx, nil, 0, rpc.Memory{make([]byte, 1)})
			return err
		},
		"Push of nothing says outside": func(ctx context.Context) error {
			_, err := c.RPC().Push(ctx, &rpc.Bulk{}, 0, rpc.Memory{make([]byte, 1)})
			return err
		},
		"the null Bulk is bound to nobody: says null": func(context.Context) error { _, err := (*rpc.Bulk)(nil).Bind("x"); return err },
		"the null Bulk is fine": func(context.Context) error {
			for _, b := range []*rpc.Bulk{nil, {}} {
				if bytes, err := b.Append(nil); err != nil || len(bytes) != 1 || b.Rights() != 0 || b.Owner() != 0 || b.Addrs() != nil || b.Carried() || b.Size() != 0 {
					return fmt.Errorf("null: %v, %v", bytes, err)
				}
				if err := b.Close(); err != nil {
					return err
				}
			}
			return nil
		},
		"Connect says node":          func(ctx context.Context) error { _, err := Connect(ctx, Config{}); return err },
		"Load says name":             func(ctx context.Context) error { _, err := c.Load(ctx, LoadSpec{}, nil); return err },
		"Load of a name says source": func(ctx context.Context) error { _, err := c.Load(ctx, LoadSpec{Name: "x"}, nil); return err },
		"Load without options says form": func(ctx context.Context) error {
			_, err := c.Load(ctx, LoadSpec{Name: "x", Input: dataset.NewText("x", nil)}, nil)
			return err
		},
		"Load of a zero plan says plan": func(ctx context.Context) error {
			_, err := c.Load(ctx, LoadSpec{Name: "x", Plan: &dataset.Plan{}}, nil)
			return err
		},
		"Load of a zero blank says 0 windows": func(ctx context.Context) error {
			_, err := c.Load(ctx, LoadSpec{Name: "x", Blank: &Blank{}}, nil)
			return err
		},
		"Load of a zero source says name": func(ctx context.Context) error {
			_, err := c.Load(ctx, LoadSpec{Name: "x", At: []Source{{}}}, nil)
			return err
		},
		"Stat says name":     func(ctx context.Context) error { _, err := c.Stat(ctx, ""); return err },
		"Table says name":    func(ctx context.Context) error { _, err := c.Table(ctx, "", ""); return err },
		"Remove says name":   func(ctx context.Context) error { return c.Remove(ctx, "") },
		"Grant says right":   func(ctx context.Context) error { return c.Grant(ctx, "", "", "") },
		"Endpoint says node": func(ctx context.Context) error { _, err := c.Endpoint(ctx, ""); return err },
		"Reach says node":    func(ctx context.Context) error { _, err := c.Reach(ctx, ""); return err },
		"Info says node":     func(ctx context.Context) error { _, err := c.Info(ctx, ""); return err },
		"Status says node":   func(ctx context.Context) error { _, err := c.Status(ctx, ""); return err },
		"Reader says name":   func(ctx context.Context) error { _, err := c.Reader(ctx, ""); return err },
		"Read with zero options is fine": func(ctx context.Context) error {
			var out bytes.Buffer
			err := c.Read(ctx, "log", ReadOptions{}, &out)
			if err == nil && out.String() != text {
				err = fmt.Errorf("it wrote %q", &out)
			}
			return err
		},
	} {
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("%s: panic: %v\n%s", name, p, debug.Stack())
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), moment)
			defer cancel()
			err := call(ctx)
			_, says, fails := strings.Cut(name, " says ")
			if (err != nil) != fails || fails && !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", name, err)
			}
		}()
	}
}

// endFuture calls all methods of a Future that was never started.
func endFuture(ctx context.Context, f *inject.Future) error {
	f.Cancel()
	<-f.Done()
	if parts, bytes := f.Progress(); parts != 0 || bytes != 0 {
		return fmt.Errorf("progress: %d parts, %d bytes", parts, bytes)
	}
	_, err := f.Wait(ctx)
	return err
}

// TestUnmadeClient: a Client that Connect did not make says so, whatever is called.
func TestUnmadeClient(t *testing.T) {
	for name, c := range map[string]*Client{"zero": {}, "nil": nil} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			for name, call := range map[string]func() error{
				"Endpoint":   func() error { _, err := c.Endpoint(ctx, "n"); return err },
				"Reach":      func() error { _, err := c.Reach(ctx, "n"); return err },
				"Info":       func() error { _, err := c.Info(ctx, "n"); return err },
				"Status":     func() error { _, err := c.Status(ctx, "n"); return err },
				"List":       func() error { _, err := c.List(ctx); return err },
				"Stat":       func() error { _, err := c.Stat(ctx, "x"); return err },
				"Table":      func() error { _, err := c.Table(ctx, "x", ""); return err },
				"Remove":     func() error { return c.Remove(ctx, "x") },
				"Grant":      func() error { return c.Grant(ctx, "x", "*", "r") },
				"Reader":     func() error { _, err := c.Reader(ctx, "x"); return err },
				"Read":       func() error { return c.Read(ctx, "x", ReadOptions{}, io.Discard) },
				"ReadWindow": func() error { return c.ReadWindow(ctx, "x", 0, 0, io.Discard) },
				"Load": func() error {
					_, err := c.Load(ctx, LoadSpec{Name: "x", Blank: &Blank{Rows: 1, Sizes: []uint64{8}}}, nil)
					return err
				},
				"invoke.Run": func() error {
					_, err := invoke.Run(ctx, c.Runtime(), invoke.Request{Image: xrdma.Echo(), Table: &cluster.Table{}})
					if err != nil && strings.Contains(err.Error(), "no runtime") {
						return errUnmade
					}
					return err
				},
			} {
				if err := call(); !errors.Is(err, errUnmade) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if c.Element() != nil || c.RPC() != nil || c.Nodes() != nil || c.Principal() != (cluster.Principal{}) {
				t.Error("it has parts")
			}
			for range 2 {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
