package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/wherry-fabric/wherry/client"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/xrdma"
	"github.com/wherry-fabric/wherry/invoke"
)

// explained is what one node says of a function.
type explained struct {
	Node  string `json:"node"`
	Error string `json:"error,omitempty"` // it did not say
	*control.Explanation
}

// maxAskedAfter bounds the assembled functions that nodes are asked for which did not make them.
const maxAskedAfter = 16

// explain says on standard error in which form a function ran, and those that came from it: at every node of its dataset, or the one that it was run on.
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
	askAfter(ctx, c, req, list)
	if a.json {
		return json.NewEncoder(a.err).Encode(map[string]any{"function": req.Image.Name(), "id": req.Image.ID().String(), "asked": req.Form.String(), "explain": list})
	}
	for i := range list {
		list[i].write(a.err, req.Image)
	}
	return nil
}

// askAfter asks the other nodes for functions that one assembled: only their maker knows what they came from.
func askAfter(ctx context.Context, c *client.Client, req *invoke.Request, list []explained) {
	var made []control.Descendant
	collect := func(more []control.Descendant) {
		for _, d := range more {
			if d.Kind == string(inject.Assembled) && len(made) < maxAskedAfter && !slices.ContainsFunc(made, func(m control.Descendant) bool { return m.ID == d.ID }) {
				made = append(made, d)
			}
		}
	}
	for _, e := range list {
		if e.Explanation != nil {
			collect(e.Descendants)
		}
	}
	for i := 0; i < len(made); i++ {
		id, err := image.ParseID(made[i].ID)
		for _, e := range list {
			if err != nil || e.Explanation == nil || e.has(made[i].ID) {
				continue
			}
			there, err := c.Explain(ctx, e.Node, id, forms.Auto) // whatever its maker runs as
			if err != nil || !there.Known {
				continue // it did not come there
			}
			d := made[i]
			d.Chosen = there.Chosen
			e.Descendants = append(e.Descendants, d)
			for _, d := range there.Descendants {
				if !e.has(d.ID) {
					e.Descendants = append(e.Descendants, d)
				}
			}
			collect(there.Descendants)
		}
	}
}

// has reports whether a node has said something of a function that came from the one that was asked for.
func (e *explained) has(id string) bool {
	return slices.ContainsFunc(e.Descendants, func(d control.Descendant) bool { return d.ID == id })
}

// write says for people what a node said.
func (e *explained) write(w io.Writer, img *image.Image) {
	switch {
	case e.Error != "":
		fmt.Fprintf(w, "%s: does not say: %s\n", e.Node, e.Error)
		return
	case !e.Known:
		fmt.Fprintf(w, "%s: %s did not come here\n", e.Node, img.Name())
	case e.Form == "" && len(e.Refused) == 0:
		fmt.Fprintf(w, "%s: %s has come here, and has not run: %s\n", e.Node, img.Name(), e.Why)
	case e.Form == "":
		fmt.Fprintf(w, "%s: %s cannot run here\n", e.Node, img.Name())
	default:
		fmt.Fprintf(w, "%s: %s\n", e.Node, asForm(&e.Chosen))
	}
	writeRefused(w, e.Node, &e.Chosen)
	for i := range e.Descendants {
		d := &e.Descendants[i]
		from := "it"
		if d.Parent != img.ID().String() {
			from = shortID(d.Parent)
		}
		how := map[inject.Kind]string{inject.Assembled: "assembled by ", inject.Derived: "derived from "}[inject.Kind(d.Kind)] + from
		fmt.Fprintf(w, "%s: %s %s, %s, ", e.Node, d.Name, shortID(d.ID), how)
		switch {
		case d.Form != "":
			fmt.Fprintf(w, "%s\n", asForm(&d.Chosen))
		case len(d.Refused) > 0:
			fmt.Fprintln(w, "cannot run here")
		default:
			fmt.Fprintf(w, "is here: %s\n", d.Why)
		}
		writeRefused(w, e.Node, &d.Chosen)
	}
	if e.DescendantsLeft > 0 {
		fmt.Fprintf(w, "%s: and %d older ones that came from it\n", e.Node, e.DescendantsLeft)
	}
}

// asForm says in which form a function runs, and why.
func asForm(c *control.Chosen) string {
	text := "as " + abi.Offer{Form: c.Form, Triple: c.Triple}.String()
	if c.Tier != "" {
		text += " (" + c.Tier + ")"
	}
	return text + ": " + c.Why
}

func writeRefused(w io.Writer, node string, c *control.Chosen) {
	for _, r := range c.Refused {
		fmt.Fprintf(w, "%s:   not as %s: %s\n", node, abi.Offer{Form: r.Form, Triple: r.Triple}, r.Why)
	}
}

// shortID is an identity's beginning, for people.
func shortID(id string) string {
	if parsed, err := image.ParseID(id); err == nil {
		return parsed.Short()
	}
	return id
}
