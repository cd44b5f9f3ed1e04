package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"golang.org/x/sys/unix"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
)

const (
	// quotaBytes bounds the file that a member keeps everything in: 1,000 components and 32,767 regions take some 30 MiB.
	quotaBytes = 256 << 20
	// keptRevisions is how many changes a member remembers for those who watch; older ones are compacted away every five minutes.
	keptRevisions = "10000"
	// maxMembers bounds an etcd cluster: each change waits for more than half of the members' disks.
	maxMembers = 7
)

// Member is one member of an etcd cluster that runs inside nodes.
type Member struct {
	Name string
	Addr string // host:port, for the other members
}

// ServerConfig describes a member.
type ServerConfig struct {
	Name string // of this member
	Dir  string // keeps its data; it is made if it is not there
	// Members are all of the cluster, this one too, the same list for each. Empty: the member is alone, and listens nowhere. A member that has no data
	// yet waits for an answer of any other, and joins its cluster.
	Members []Member
	// New makes this member begin a cluster of Members. It is for one of them, and for its first start only: nothing else tells a directory that was
	// lost from one that has never had data. It is refused where Dir has data, or another member answers.
	New bool
	// Join asks the members that are up to take this one in: where Dir has nothing yet and the others have a cluster. nil: such a member does
	// not start.
	Join func(ctx context.Context, m Member) ([]cluster.StoreMember, error)
	TLS  ca.Files     // shown to the other members and judges them; the zero value: no TLS
	Log  *slog.Logger // nil: silent
}

// Validate reports what is wrong.
func (c *ServerConfig) Validate() error {
	if c.Dir == "" {
		return errors.New("etcd: a member needs a directory for its data")
	}
	if len(c.Members) > maxMembers {
		return fmt.Errorf("etcd: %d members: more than %d make each change slower and nothing safer", len(c.Members), maxMembers)
	}
	names := map[string]bool{}
	for _, m := range c.Members {
		if host, _, err := net.SplitHostPort(m.Addr); err != nil || host == "" || strings.ContainsAny(m.Name, "=,") || names[m.Name] {
			return fmt.Errorf("etcd: member %q at %q: each needs a name of its own and an address host:port that the others can dial", m.Name, m.Addr)
		}
		names[m.Name] = true
	}
	if len(c.Members) > 0 && !names[c.Name] {
		return fmt.Errorf("etcd: %q is not among the members: each is started with the same list, its own entry in it", c.Name)
	}
	return nil
}

// Server is a member of an etcd cluster in this process.
type Server struct {
	cfg    ServerConfig
	etcd   *embed.Etcd
	client *clientv3.Client
	store  *Store
	peers  *http.Client // asks other members who there is
	lock   *os.File
	failed chan error
	agreed chan struct{}      // closed once the cluster knows this member as it is
	end    context.CancelFunc // of what runs beside it
	work   sync.WaitGroup
	ends   atomic.Bool // Close was called
}

// Start runs a member, which goes on after ctx has ended. One that has no data waits for the others to take it in, a minute at most. It does not wait until there are enough others for
// changes: until then its Store's calls fail with cluster.ErrAway.
func Start(ctx context.Context, cfg ServerConfig) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, lock: lock, failed: make(chan error, 1), agreed: make(chan struct{})}
	var list *revoked
	if cfg.TLS.List != "" {
		list, err = newRevoked(cfg.TLS.List, cfg.Dir, cfg.Log)
	}
	if err == nil {
		err = s.begin(ctx, cfg.embedded(list, &s.ends))
	}
	if err != nil {
		s.closePeers()
		lock.Close()
		return nil, fmt.Errorf("etcd: member %s in %s: %w", cfg.Name, cfg.Dir, err)
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	s.end, s.client = end, v3client.New(s.etcd.Server)
	s.store = &Store{c: s.client, where: "the etcd member in " + cfg.Dir}
	if list != nil {
		s.work.Go(func() { list.follow(life) })
	}
	s.work.Go(func() { s.agree(life) })
	s.work.Go(func() { s.watch(life) })
	return s, nil
}

// lockDir keeps a second member out of a directory: etcd itself would wait for the first without end.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "wherry.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errors.New("another process uses this directory: end it, or give this node a directory of its own")
		}
		return nil, fmt.Errorf("etcd: %s: %w", dir, err)
	}
	return f, nil
}

// embedded is the member's configuration: no listener for clients, for they are in this process, and none for peers if there are none.
func (c *ServerConfig) embedded(list *revoked, ends *atomic.Bool) *embed.Config {
	e := embed.NewConfig()
	e.Name, e.Dir = c.Name, filepath.Join(c.Dir, "etcd")
	e.ListenClientUrls, e.ListenPeerUrls = nil, nil
	scheme := c.scheme()
	if c.TLS.Cert != "" {
		e.PeerTLSInfo.CertFile, e.PeerTLSInfo.KeyFile, e.PeerTLSInfo.TrustedCAFile = c.TLS.Cert, c.TLS.Key, c.TLS.CA
		e.PeerTLSInfo.ClientCertAuth = true
		if list != nil {
			e.PeerTLSInfo.CRLFile = list.to
		}
		for _, m := range c.Members { // the authority issues certificates to clients, too, but not for these hosts
			if host, _, err := net.SplitHostPort(m.Addr); err == nil && !slices.Contains(e.PeerTLSInfo.AllowedHostnames, host) {
				e.PeerTLSInfo.AllowedHostnames = append(e.PeerTLSInfo.AllowedHostnames, host)
			}
		}
	}
	peer := url.URL{Scheme: scheme, Host: "127.0.0.1:2380"} // a member that is alone is never dialled, but etcd wants an address
	var members []string
	for _, m := range c.Members {
		u := url.URL{Scheme: scheme, Host: m.Addr}
		members = append(members, m.Name+"="+u.String())
		if m.Name == c.Name {
			peer = u
			e.ListenPeerUrls = []url.URL{u}
		}
	}
	if members == nil {
		members = []string{c.Name + "=" + peer.String()}
	}
	e.AdvertisePeerUrls, e.InitialCluster = []url.URL{peer}, strings.Join(members, ",")
	e.InitialClusterToken = "wherry"
	e.AutoCompactionMode, e.AutoCompactionRetention = embed.CompactorModeRevision, keptRevisions
	e.QuotaBackendBytes = quotaBytes
	e.StrictReconfigCheck, e.PreVote = true, true
	e.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapLogger(c.Log, ends))
	return e
}

// Store is what the member's cluster keeps.
func (s *Server) Store() *Store { return s.store }

// Failed says why the member has ended by itself.
func (s *Server) Failed() <-chan error { return s.failed }

// watch notices that the member has ended by itself.
func (s *Server) watch(ctx context.Context) {
	select {
	case err := <-s.etcd.Err():
		s.failed <- err
	case <-s.etcd.Server.StopNotify():
		s.failed <- fmt.Errorf("it is no member any more: another manager removed or replaced it. To join again, end the node, remove %s and start it", s.cfg.Dir)
	case <-ctx.Done():
	}
}

// Close ends the member. Its data stays.
func (s *Server) Close() error {
	s.ends.Store(true)
	s.end()
	s.work.Wait()
	s.client.Close() // says that its context has ended
	s.etcd.Close()
	s.closePeers()
	return s.lock.Close()
}
