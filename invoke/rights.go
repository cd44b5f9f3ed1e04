package invoke

import (
	"fmt"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/image"
)

// RightsError says that the caller's keys to a dataset lack a right that the function needs. It is cluster.ErrForbidden. Why they
// lack it, a grant or a capability, only a node knows: asked for a table with that right (client.Table), it says so.
type RightsError struct {
	Does    string // what the function would do, as in "tally writes window 0 (cells)"
	Dataset string
	Element string // whose keys they are
	Has     fabric.Rights
	Missing fabric.Rights
}

func (e *RightsError) Error() string {
	return fmt.Sprintf("%v: %s, and your rights on %s at %s (%v) do not include it: you lack %s",
		cluster.ErrForbidden, e.Does, e.Dataset, e.Element, e.Has, cluster.NeedRights(e.Missing))
}

// Unwrap makes errors.Is find cluster.ErrForbidden.
func (e *RightsError) Unwrap() error { return cluster.ErrForbidden }

// checkRights finds windows that the function may not use as it says it does. The
// elements would refuse it too, but a key does not say why it lacks a right.
func (r *Request) checkRights() error {
	if r.Table == nil {
		return nil
	}
	m := r.Image.Call()
	for i := range r.Table.Shards {
		if r.Element != nil && *r.Element != uint32(i) {
			continue
		}
		for w := range r.Table.Shards[i].Windows {
			if err := checkWindow(m, r.Table, i, w); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkWindow(m *image.Call, t *cluster.Table, shard, i int) error {
	s := &t.Shards[shard]
	w := &s.Windows[i]
	need, does, name := fabric.RightRead, "reads", ""
	if i < len(m.Windows) && m.Windows[i].Writable {
		need, does = need|fabric.RightWrite, "writes"
	}
	missing := need &^ w.Key.Rights
	if w.Size == 0 || missing == 0 {
		return nil
	}
	if i < len(m.Windows) {
		name = fmt.Sprintf(" (%s)", m.Windows[i].Name)
	}
	if missing == fabric.RightWrite && !w.Writable {
		return fmt.Errorf("%w: %s writes window %d%s, and %s is sealed: load it anew to be written (wherry mem load --writable --replace)",
			ErrRequest, m.Name, i, name, t.Name)
	}
	return &RightsError{fmt.Sprintf("%s %s window %d%s", m.Name, does, i, name), t.Name, s.Element, w.Key.Rights, missing}
}
