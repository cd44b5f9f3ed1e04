package invoke

import (
	"fmt"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/image"
)

// checkRights finds windows that the function may not use as it says it does. The
// elements would refuse it too, but a key does not say why it lacks a right.
func (r *Request) checkRights() error {
	if r.Table == nil {
		return nil
	}
	m := r.Image.Manifest()
	for i := range r.Table.Shards {
		if r.Element != nil && *r.Element != uint32(i) {
			continue
		}
		for w := range r.Table.Shards[i].Windows {
			if err := checkWindow(&m, r.Table, i, w); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkWindow(m *image.Manifest, t *cluster.Table, shard, i int) error {
	s := &t.Shards[shard]
	w := &s.Windows[i]
	need, does, name := fabric.RightRead, "reads", ""
	if i < len(m.Windows) {
		name = fmt.Sprintf(" (%s)", m.Windows[i].Name)
		if m.Windows[i].Writable {
			need, does = need|fabric.RightWrite, "writes"
		}
	}
	missing := need &^ w.Key.Rights
	switch {
	case w.Size == 0 || missing == 0:
		return nil
	case missing == fabric.RightWrite && !w.Writable:
		return fmt.Errorf("%w: %s writes window %d%s, and %s is sealed: load it anew to be written (wherry mem load --writable --replace)",
			ErrRequest, m.Name, i, name, t.Name)
	}
	return fmt.Errorf("%w: %s %s window %d%s, and your rights on %s at %s (%v) do not include it: you lack %s; its owner or an admin can grant it (wherry mem grant), and your token or certificate must have the capability too",
		cluster.ErrForbidden, m.Name, does, i, name, t.Name, s.Element, w.Key.Rights, cluster.NeedRights(missing))
}
