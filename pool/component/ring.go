package component

import "github.com/wherry-fabric/wherry/fabric"

// ring are the keys to one thing that principals were given: one for each principal and set of rights, so that they can be taken back one by one.
type ring map[holding]fabric.Key

type holding struct {
	who    string
	rights fabric.Rights
}

// give is a principal's key, made on its first wish by narrowing root.
func (g ring) give(el *fabric.Element, root fabric.Key, off, size uint64, who string, rights fabric.Rights) (fabric.Key, error) {
	h := holding{who, rights}
	if k, there := g[h]; there {
		return k, nil
	}
	k, err := el.Narrow(root, off, size, rights)
	if err == nil {
		g[h] = k
	}
	return k, err
}

// sweep ends the keys that allow more than their holders may do now.
func (g ring) sweep(el *fabric.Element, may func(who string) fabric.Rights) {
	for h, k := range g {
		if h.rights&^may(h.who) != 0 {
			el.Revoke(k) // fails only if it is revoked already
			delete(g, h)
		}
	}
}
