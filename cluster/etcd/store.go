package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
)

const (
	// callTime bounds one call to etcd where its context has no earlier deadline. An election takes etcd 1 to 2 seconds.
	callTime = 5 * time.Second
	// retryTime is the pause before a read is tried again.
	retryTime = 50 * time.Millisecond
	// aliveTime is how often a silent connection is probed, and how long the answer may take.
	aliveTime = 2 * time.Second
	// pageKeys is how many pairs one request of Get asks for: their values are at most 1.5 MiB each, and mostly below 1 KiB.
	pageKeys = 1000
	// maxEndpoints bounds the addresses of an etcd cluster.
	maxEndpoints = 16
)

// Config says how an etcd cluster that is run apart from wherry is reached.
type Config struct {
	Endpoints []string     // "http://host:2379", "https://host:2379"
	TLS       ca.Files     // for https: what is shown to etcd, and what its certificate is judged by; List is not used
	Log       *slog.Logger // nil: silent
}

// Validate reports what is wrong.
func (c *Config) Validate() error {
	if len(c.Endpoints) == 0 || len(c.Endpoints) > maxEndpoints {
		return fmt.Errorf("etcd: %d addresses, from 1 to %d are possible", len(c.Endpoints), maxEndpoints)
	}
	for _, e := range c.Endpoints {
		scheme, rest, ok := strings.Cut(e, "://")
		if !ok || scheme != "http" && scheme != "https" || rest == "" {
			return fmt.Errorf("etcd: the address %q is not http://host:2379 or https://host:2379", e)
		}
		if scheme == "https" && c.TLS.CA == "" {
			return fmt.Errorf("etcd: %s needs the certificate of etcd's authority: give --etcd-ca", e)
		}
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		return errors.New("etcd: --etcd-cert and --etcd-key go together")
	}
	return nil
}

// Store is a cluster.Store in etcd. Its methods may be called from any goroutine.
type Store struct {
	c     *clientv3.Client
	where string // for messages
}

// Dial makes a Store that is kept by an etcd cluster. It does not wait for an answer: Ping does.
func Dial(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := clientv3.Config{Endpoints: cfg.Endpoints, DialTimeout: callTime, DialKeepAliveTime: aliveTime, DialKeepAliveTimeout: aliveTime,
		PermitWithoutStream: true, Logger: zapLogger(cfg.Log, new(atomic.Bool)), DialOptions: []grpc.DialOption{soon}}
	if cfg.TLS.CA != "" {
		info := transport.TLSInfo{CertFile: cfg.TLS.Cert, KeyFile: cfg.TLS.Key, TrustedCAFile: cfg.TLS.CA, Logger: c.Logger}
		var err error
		if c.TLS, err = info.ClientConfig(); err != nil {
			return nil, fmt.Errorf("etcd: certificates: %w", err)
		}
	}
	client, err := clientv3.New(c)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	return &Store{c: client, where: "etcd at " + strings.Join(cfg.Endpoints, ", ")}, nil
}

// soon has an etcd that was away found within a second of its return, before leases of components end. Without it, the longer it was away
// the longer it takes, up to two minutes.
var soon = grpc.WithConnectParams(grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: 2 * time.Second,
})

// Close ends the connections of a store that Dial made.
func (s *Store) Close() error { return s.c.Close() }

// Where names the store for people.
func (s *Store) Where() string { return s.where }

// Ping asks etcd for anything, and reports that it does not answer.
func (s *Store) Ping(ctx context.Context) error {
	ctx, end := context.WithTimeout(ctx, callTime)
	defer end()
	_, err := s.read(ctx, "/", clientv3.WithCountOnly())
	return s.fail(ctx, "ping", err)
}

// read is a Get that is tried until its context ends: one that comes during an election is refused.
func (s *Store) read(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	for {
		r, err := s.c.Get(ctx, key, options...)
		if !errors.Is(err, rpctypes.ErrLeaderChanged) && !errors.Is(err, rpctypes.ErrNoLeader) {
			return r, err
		}
		select {
		case <-time.After(retryTime):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// fail makes an error of this package's contract.
func (s *Store) fail(ctx context.Context, what string, err error) error {
	var kind error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		kind = cluster.ErrLease
	case errors.Is(err, rpctypes.ErrCompacted):
		kind = cluster.ErrCompacted
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: %s: its room is used up, and it takes no changes: compact and defragment it, then disarm its alarm (etcdctl alarm disarm): %w", cluster.ErrAway, s.where, err)
	case errors.Is(err, rpctypes.ErrPermissionDenied), errors.Is(err, rpctypes.ErrUserEmpty):
		return fmt.Errorf("%w: %s refuses us: %w", cluster.ErrAway, s.where, err)
	case errors.Is(context.Cause(ctx), context.Canceled):
		return context.Cause(ctx)
	default:
		kind = cluster.ErrAway
	}
	return fmt.Errorf("%w: %s: %s: %w", kind, s.where, what, err)
}

// Get implements cluster.Store. A long answer is asked for in pages, all of one revision.
func (s *Store) Get(ctx context.Context, prefix string) (list []cluster.Pair, rev cluster.Revision, err error) {
	ctx, end := context.WithTimeout(ctx, callTime)
	defer end()
	options := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithLimit(pageKeys)}
	from := prefix
	for {
		page, err := s.read(ctx, from, options...)
		if err != nil {
			return nil, 0, s.fail(ctx, "get", err)
		}
		if rev == 0 {
			rev = cluster.Revision(page.Header.Revision)
			options = []clientv3.OpOption{clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(pageKeys), clientv3.WithRev(page.Header.Revision)}
			if prefix == "" {
				options[0] = clientv3.WithFromKey()
			}
		}
		for _, kv := range page.Kvs {
			list = append(list, pair(kv))
		}
		if !page.More {
			return list, rev, nil
		}
		from = list[len(list)-1].Key + "\x00"
	}
}

func pair(kv *mvccpb.KeyValue) cluster.Pair {
	return cluster.Pair{Key: string(kv.Key), Value: kv.Value, Lease: cluster.Lease(kv.Lease), Changed: cluster.Revision(kv.ModRevision)}
}

// Commit implements cluster.Store.
func (s *Store) Commit(ctx context.Context, t cluster.Txn) (cluster.Revision, error) {
	if err := t.Validate(); err != nil {
		return 0, err
	}
	ctx, end := context.WithTimeout(ctx, callTime)
	defer end()
	var conds []clientv3.Cmp
	for key, rev := range t.If {
		conds = append(conds, clientv3.Compare(clientv3.ModRevision(key), "=", int64(rev)))
	}
	var ops []clientv3.Op
	for _, p := range t.Put {
		ops = append(ops, clientv3.OpPut(p.Key, string(p.Value), clientv3.WithLease(clientv3.LeaseID(p.Lease))))
	}
	for _, key := range t.Remove {
		ops = append(ops, clientv3.OpDelete(key))
	}
	r, err := s.c.Txn(ctx).If(conds...).Then(ops...).Commit()
	if err != nil {
		return 0, s.fail(ctx, "commit", err)
	}
	if !r.Succeeded {
		return 0, fmt.Errorf("%w: at revision %d", cluster.ErrConflict, r.Header.Revision)
	}
	return cluster.Revision(r.Header.Revision), nil
}

// Watch implements cluster.Store.
func (s *Store) Watch(ctx context.Context, prefix string, after cluster.Revision) ([]cluster.Pair, cluster.Revision, error) {
	watch, end := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer end()
	for r := range s.c.Watch(watch, prefix, clientv3.WithPrefix(), clientv3.WithRev(int64(after)+1)) {
		if r.CompactRevision != 0 {
			return nil, 0, fmt.Errorf("%w: after revision %d; those from %d are left", cluster.ErrCompacted, after, r.CompactRevision)
		}
		if err := r.Err(); err != nil {
			return nil, 0, s.fail(ctx, "watch", err)
		}
		if len(r.Events) == 0 {
			continue
		}
		out := make([]cluster.Pair, len(r.Events))
		for i, e := range r.Events { // all of a revision come together
			out[i] = pair(e.Kv)
			out[i].Removed = e.Type == mvccpb.DELETE
		}
		return out, out[len(out)-1].Changed, nil
	}
	if ctx.Err() != nil {
		return nil, 0, context.Cause(ctx)
	}
	return nil, 0, fmt.Errorf("%w: %s: the watch ended", cluster.ErrAway, s.where)
}

// Lease implements cluster.Store. etcd counts in seconds: a part of one is a whole one.
func (s *Store) Lease(ctx context.Context, length time.Duration) (cluster.Lease, error) {
	ctx, end := context.WithTimeout(ctx, callTime)
	defer end()
	r, err := s.c.Grant(ctx, int64((length+time.Second-1)/time.Second))
	if err != nil {
		return 0, s.fail(ctx, "lease", err)
	}
	return cluster.Lease(r.ID), nil
}

// Renew implements cluster.Store.
func (s *Store) Renew(ctx context.Context, l cluster.Lease) error {
	ctx, end := context.WithTimeout(ctx, callTime)
	defer end()
	_, err := s.c.KeepAliveOnce(ctx, clientv3.LeaseID(l))
	return s.fail(ctx, "renew", err)
}

// End implements cluster.Store.
func (s *Store) End(ctx context.Context, l cluster.Lease) error {
	ctx, end := context.WithTimeout(ctx, callTime)
	defer end()
	_, err := s.c.Revoke(ctx, clientv3.LeaseID(l))
	return s.fail(ctx, "end", err)
}
