package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/fabric"
)

// Dataset is what the connected nodes say of one dataset together.
type Dataset struct {
	control.Entry
	// Lost and Unreachable say why the shards of some elements cannot be used, by the
	// element's name; a dataset that has such shards cannot be used as a whole. What
	// is lost does not come back: its node is there without it. What cannot be reached may:
	// its node is not connected, or does not answer.
	Lost        map[string]string `json:"lost,omitempty"`
	Unreachable map[string]string `json:"unreachable,omitempty"`
	Parts       []PartOf          `json:"parts,omitempty"` // of columns
}

// PartOf is a part of a dataset of columns, and where it lies.
type PartOf struct {
	Node     string `json:"node"`
	FirstRow uint64 `json:"first_row"`
	Rows     uint64 `json:"rows"`
	Bytes    uint64 `json:"bytes"`
}

// partsOf lists a table's parts.
func partsOf(t *cluster.Table) (out []PartOf) {
	for _, s := range t.Shards {
		first := s.FirstRow
		for i, p := range s.Parts {
			out = append(out, PartOf{Node: s.Element, FirstRow: first, Rows: p.Rows, Bytes: s.Windows[cluster.PartWindows*i+cluster.PartFile].Size})
			first += p.Rows
		}
	}
	return out
}

// List lists the datasets that the client may see, by name. A node that does not
// answer is left out; the datasets that it holds shards of say so.
func (c *Client) List(ctx context.Context) ([]Dataset, error) {
	answers, err := askAll[control.ListReply](ctx, c, control.CallList, control.Nothing{}, nil)
	if err != nil {
		return nil, err
	}
	all := map[string][]answer[control.Entry]{}
	var failed []error
	silent := map[string]error{}
	for _, a := range answers {
		if a.err != nil {
			failed, silent[a.ep.Name()] = append(failed, a.err), a.err
			continue
		}
		for _, e := range a.reply.Entries {
			all[e.Name] = append(all[e.Name], answer[control.Entry]{ep: a.ep, reply: &e})
		}
	}
	if len(failed) == len(answers) {
		return nil, errors.Join(failed...)
	}
	out := []Dataset{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, c.merge(all[name], silent))
	}
	return out, nil
}

// Stat describes one dataset.
func (c *Client) Stat(ctx context.Context, name string) (*Dataset, error) {
	answers, err := askAll[control.Entry](ctx, c, control.CallStat, control.NameRequest{Name: name}, nil)
	if err != nil {
		return nil, err
	}
	silent := map[string]error{}
	for _, a := range answers {
		if a.err != nil && !errors.Is(a.err, cluster.ErrNotFound) {
			silent[a.ep.Name()] = a.err
		}
	}
	good := slices.DeleteFunc(slices.Clone(answers), func(a answer[control.Entry]) bool { return a.err != nil })
	if len(good) == 0 {
		return nil, worst(answers)
	}
	d := c.merge(good, silent)
	return &d, nil
}

// worst picks the error that tells most: not being found means least.
func worst[T any](answers []answer[T]) error {
	var found error
	for _, a := range answers {
		if a.err != nil && (found == nil || errors.Is(found, cluster.ErrNotFound) || errors.Is(found, control.ErrNoShard)) {
			found = a.err
		}
	}
	return found
}

// merge joins what nodes say of one dataset: the newest version counts. silent
// are the nodes that gave no answer, and why.
func (c *Client) merge(entries []answer[control.Entry], silent map[string]error) Dataset {
	var d Dataset
	for _, a := range entries {
		if d.Table == nil || a.reply.Version > d.Version {
			d.Entry = *a.reply
		}
	}
	d.Parts = partsOf(d.Table)
	lent := int64(0)
	has := map[string]bool{}
	for _, a := range entries {
		if a.reply.Version == d.Version {
			has[a.ep.Name()] = true
			lent += a.reply.LentBytes
		}
	}
	d.LentBytes = lent
	for _, s := range d.Table.Shards {
		err := c.shardLost(s, has[s.Element])
		if why := silent[s.Element]; why != nil && errors.Is(err, control.ErrNoShard) {
			err = why // whether it has its shard is not known
		}
		if err == nil {
			continue
		}
		why := &d.Unreachable
		if errors.Is(err, control.ErrRestarted) || errors.Is(err, control.ErrNoShard) {
			why = &d.Lost
		}
		if *why == nil {
			*why = map[string]string{}
		}
		(*why)[s.Element] = err.Error()
	}
	return d
}

// shardLost says why a shard cannot be used; known is whether its node knows the dataset.
func (c *Client) shardLost(s cluster.Shard, known bool) error {
	ep := c.links.Endpoint(s.Element)
	switch {
	case ep == nil:
		return fmt.Errorf("node %s holds a shard and is %w: if its process goes on, the shard is back when the node is; if not, it is gone", s.Element, control.ErrNotConnected)
	case ep.Incarnation() != s.Incarnation:
		return fmt.Errorf("node %s: %w: remove the dataset and load it again", s.Element, control.ErrRestarted)
	case !known:
		return fmt.Errorf("node %s: %w: it does not know this version: remove the dataset and load it again", s.Element, control.ErrNoShard)
	}
	return nil
}

// holdersOf are the elements that hold a shard.
func holdersOf(t *cluster.Table) (names []string) {
	for _, s := range t.Shards {
		names = append(names, s.Element)
	}
	return names
}

// Table is a dataset's shard table with keys to all its windows, good for the given
// rights ("r", "rw", …), or for all that the client has if rights is "". Its identity is
// this client's own: keys are made for each principal.
func (c *Client) Table(ctx context.Context, name, rights string) (*cluster.Table, error) {
	over := time.Now().Add(betweenTime)
	for wait := 2 * time.Millisecond; ; wait *= 2 {
		t, err := c.table(ctx, name, rights)
		if !errors.Is(err, errBetween) || time.Now().Add(wait).After(over) {
			return t, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait):
		}
	}
}

// betweenTime is how long a load may take from the first node that makes it visible to the last.
const betweenTime = 2 * time.Second

// errBetween says that a node still has the version before.
var errBetween = errors.New("it has an older version than others: a load is being finished, or was not finished there; try again, and if that stays so remove the dataset and load it again")

// table asks once.
func (c *Client) table(ctx context.Context, name, rights string) (*cluster.Table, error) {
	answers, err := askAll[control.TableReply](ctx, c, control.CallTable, control.TableRequest{Name: name, Rights: rights},
		func(r *control.TableReply) []string { // only a shard's own node has its keys
			t, err := cluster.DecodeTable(r.Table)
			if err != nil {
				return nil
			}
			return holdersOf(t)
		})
	if err != nil {
		return nil, err
	}
	var table *cluster.Table
	from := map[string]*cluster.Table{}
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		t, err := cluster.DecodeTable(a.reply.Table)
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", a.ep.Name(), err)
		}
		from[a.ep.Name()] = t
		if table == nil || t.Version > table.Version {
			table = t
		}
	}
	if table == nil {
		return nil, worst(answers)
	}
	table = table.WithoutKeys()
	for i := range table.Shards {
		s := &table.Shards[i]
		own := from[s.Element]
		known := own != nil && own.Version == table.Version && own.Index(s.Element) == i
		if own != nil && own.Version < table.Version && c.shardLost(*s, true) == nil {
			return nil, fmt.Errorf("dataset %s: node %s: %w: %w", name, s.Element, control.ErrNoShard, errBetween)
		}
		if err := c.shardLost(*s, known); err != nil {
			for _, a := range answers {
				if a.ep.Name() == s.Element && a.err != nil && !errors.Is(a.err, cluster.ErrNotFound) {
					err = a.err
				}
			}
			return nil, fmt.Errorf("dataset %s: %w", name, err)
		}
		s.Windows = own.Shards[i].Windows
	}
	if err := table.Validate(); err != nil {
		return nil, err
	}
	return table, nil
}

// Remove removes a dataset from all nodes that hold a shard of it.
func (c *Client) Remove(ctx context.Context, name string) error {
	return c.everywhere(ctx, name, "removed", func(ep *fabric.Endpoint) error {
		_, err := ask[control.Nothing](ctx, c, ep, control.CallRemove, control.NameRequest{Name: name})
		return err
	})
}

// Grant sets what a principal (or cluster.Everyone) may do with a dataset, in
// cluster.ParseRights' words; "none" takes it away, and with it the keys that the principal has.
func (c *Client) Grant(ctx context.Context, name, to, rights string) error {
	if _, err := cluster.ParseRights(rights); err != nil {
		return err
	}
	return c.everywhere(ctx, name, "changed", func(ep *fabric.Endpoint) error {
		_, err := ask[control.Nothing](ctx, c, ep, control.CallGrant, control.GrantRequest{Name: name, To: to, Rights: rights})
		return err
	})
}

// unseen does something at all nodes that have a dataset and do not let the client look at it. Why they do not is seldom why
// they refuse this: a grant to look at it would not help.
func unseen(answers []answer[control.Entry], fn func(ep *fabric.Endpoint) error) error {
	worked := false
	for _, a := range answers {
		if !errors.Is(a.err, cluster.ErrForbidden) {
			continue
		}
		if err := fn(a.ep); err != nil {
			return err
		}
		worked = true
	}
	for _, a := range answers {
		if worked && !errors.Is(a.err, cluster.ErrForbidden) && !errors.Is(a.err, cluster.ErrNotFound) {
			return fmt.Errorf("%w: it may hold a shard still; try again when it answers", a.err)
		}
	}
	if worked {
		return nil
	}
	return worst(answers)
}

// everywhere does something at all nodes that know a dataset.
func (c *Client) everywhere(ctx context.Context, name, done string, fn func(ep *fabric.Endpoint) error) error {
	patient := askTime
	if at, ok := ctx.Deadline(); ok {
		patient = min(patient, time.Until(at)/2) // the rest is for what is done at those that answer
	}
	first, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	answers, err := askAll[control.Entry](first, c, control.CallStat, control.NameRequest{Name: name}, func(e *control.Entry) []string { return holdersOf(e.Table) })
	if err != nil {
		return err
	}
	holders := map[string]fabric.Incarnation{}
	silent := map[string]error{}
	var errs []error
	var worked []string
	for _, a := range answers {
		if a.err != nil {
			if !errors.Is(a.err, cluster.ErrNotFound) {
				silent[a.ep.Name()] = a.err
			}
			continue
		}
		for _, s := range a.reply.Table.Shards {
			holders[s.Element] = s.Incarnation
		}
		if err := fn(a.ep); err != nil {
			errs = append(errs, err)
		} else {
			worked = append(worked, a.ep.Name())
		}
	}
	if len(holders) == 0 {
		return unseen(answers, fn)
	}
	for _, node := range slices.Sorted(maps.Keys(holders)) {
		// What a restarted node held is gone with its former life.
		if c.links.Endpoint(node) == nil {
			errs = append(errs, fmt.Errorf("node %s holds a shard and is %w: try again when it is", node, control.ErrNotConnected))
		} else if why := silent[node]; why != nil {
			errs = append(errs, fmt.Errorf("%w: it may hold a shard still; try again when it answers", why))
		}
	}
	if len(errs) > 0 && len(worked) > 0 {
		errs = append(errs, fmt.Errorf("it was %s at %s", done, strings.Join(worked, ", ")))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("dataset %s: %w", name, err)
	}
	return nil
}
