package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/inject/travel"
	"github.com/wherry-fabric/wherry/invoke"
	"github.com/wherry-fabric/wherry/query"
)

// ErrChanged says that a dataset got a new version while an older one was read, and that a node could not keep that one for its readers
// (docs/columns.md says when). What was read is not whole; reading again reads the new version.
var ErrChanged = errors.New("it changed while it was read, and what was there before could not be kept; ask again")

// queryTries is how often a question is asked anew of a dataset that changes.
const queryTries = 3

// Changed explains what reading a table's dataset has ended with: if its keys were revoked and there is a newer version, that is an ErrChanged. All
// other errors, and nil, it returns as they are.
func (c *Client) Changed(ctx context.Context, t *cluster.Table, err error) error {
	var refused *travel.RemoteError
	asked := errors.As(err, &refused) && refused.Code == travel.CodeRefused
	if !asked && !errors.Is(err, fabric.ErrRevoked) && !errors.Is(err, travel.ErrKey) {
		return err
	}
	now, failed := c.Stat(ctx, t.Name)
	if failed != nil || now.Version <= t.Version {
		return err
	}
	return fmt.Errorf("dataset %s: %w (version %d was read, now it is %d)", t.Name, ErrChanged, t.Version, now.Version)
}

// Query asks a question of a dataset, as invoke.Query does of a table. If that changes under the question, it is asked again.
func (c *Client) Query(ctx context.Context, name string, q query.Query) (found *invoke.Found, err error) {
	err = c.tries(ctx, name, func(t *cluster.Table) (err error) {
		found, err = invoke.Query(ctx, c.Runtime(), t, q)
		return err
	})
	return found, err
}

// tries reads a dataset with its newest table until it does not change meanwhile, queryTries at most.
func (c *Client) tries(ctx context.Context, name string, read func(*cluster.Table) error) error {
	for try := 1; ; try++ {
		t, err := c.Table(ctx, name, "r")
		if err != nil {
			return err
		}
		if err = c.Changed(ctx, t, read(t)); try == queryTries || !errors.Is(err, ErrChanged) {
			return err
		}
	}
}
