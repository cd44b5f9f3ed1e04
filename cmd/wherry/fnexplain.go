package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/invoke"
)

// explained is what one node says of a function.
type explained struct {
	Node  string `json:"node"`
	Error string `json:"error,omitempty"` // it did not say
	*control.Explanation
}

// explain says on standard error in which form a function ran: at every node of its dataset, or the one that it was run on.
func (a *app) explain(ctx context.Context, c *client.Client, f *runFlags, req *invoke.Request) error {
	if req.IsQuery() {
		var err error
		if req.Image, err = xrdma.Lookup("query"); err != nil {
			return err
		}
	}
	nodes := []string{f.node}
	switch {
	case req.Table == nil && f.node == "":
		return nil // the dataset was not found, and the function ran nowhere
	case req.Table != nil:
		nodes = nil
		for _, s := range req.Table.Shards {
			if !slices.Contains(nodes, s.Element) {
				nodes = append(nodes, s.Element)
			}
		}
	}
	var list []explained
	for _, n := range nodes {
		e, err := c.Explain(ctx, n, req.Image.ID(), req.Form)
		if err != nil {
			list = append(list, explained{Node: n, Error: err.Error()})
			continue
		}
		list = append(list, explained{Node: n, Explanation: e})
	}
	if a.json {
		return json.NewEncoder(a.err).Encode(map[string]any{"function": req.Image.Name(), "id": req.Image.ID().String(), "asked": req.Form.String(), "explain": list})
	}
	for _, e := range list {
		switch {
		case e.Error != "":
			fmt.Fprintf(a.err, "%s: does not say: %s\n", e.Node, e.Error)
			continue
		case !e.Known:
			fmt.Fprintf(a.err, "%s: %s did not come here\n", e.Node, req.Image.Name())
			continue
		case e.Form == "" && len(e.Refused) == 0:
			fmt.Fprintf(a.err, "%s: %s has come here, and has not run: %s\n", e.Node, req.Image.Name(), e.Why)
			continue
		case e.Form == "":
			fmt.Fprintf(a.err, "%s: %s cannot run here\n", e.Node, req.Image.Name())
		default:
			fmt.Fprintf(a.err, "%s: as %s", e.Node, abi.Offer{Form: e.Form, Triple: e.Triple})
			if e.Tier != "" {
				fmt.Fprintf(a.err, " (%s)", e.Tier)
			}
			fmt.Fprintf(a.err, ": %s\n", e.Why)
		}
		for _, r := range e.Refused {
			fmt.Fprintf(a.err, "%s:   not as %s: %s\n", e.Node, abi.Offer{Form: r.Form, Triple: r.Triple}, r.Why)
		}
	}
	return nil
}
