package ca

import (
	"crypto/x509"
	"fmt"
	"slices"
)

// Replace makes the identity go by the files that next was loaded from: other files, or other authorities in them. A list of
// revoked certificates that is older than the one in force is refused, and then nothing has changed. Certificates that an authority
// which is gone has issued itself are refused from then on.
func (id *Identity) Replace(next *Identity) error {
	next.mu.Lock()
	defer next.mu.Unlock()
	id.mu.Lock()
	defer id.mu.Unlock()
	for root, had := range id.numbers {
		for also, n := range next.numbers {
			if root.Equal(also) && n.Cmp(had) < 0 {
				return fmt.Errorf("%w: %s: list %v of %s was read before, and this one is only %v: an older one is not taken", ErrFile, next.files.List, had, root.Subject, n)
			}
		}
	}
	trusted := func(c *x509.Certificate) bool { return slices.ContainsFunc(next.roots, c.Equal) }
	for _, root := range id.roots {
		if !trusted(root) {
			id.dropped = append(id.dropped, root)
		}
	}
	id.dropped = slices.DeleteFunc(id.dropped, trusted)
	id.files, id.roots, id.pool = next.files, next.roots, next.pool
	id.own, id.certAt, id.keyAt, id.listAt = next.own, next.certAt, next.keyAt, next.listAt
	id.numbers, id.revoked = next.numbers, next.revoked
	id.badOwn, id.badList = [2]stamp{}, [2]stamp{}
	return nil
}
