package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/wherry-fabric/wherry/cluster"
)

const (
	// probeTime bounds asking another member for the list of members: what joins, and who asks whether a member answers, waits for it.
	probeTime = 2 * time.Second
	// maxProbe bounds the answer: a member takes some 200 bytes.
	maxProbe = 64 << 10
	// joinTime bounds how long a member tries to join: etcd takes in one at a time, and changes nothing until its members have been connected for
	// 5 seconds.
	joinTime = time.Minute
	// agreeTime is the pause before a member tries again to tell the others of itself.
	agreeTime = 250 * time.Millisecond
)

// found is a member as another one names it to peers that may connect to it.
type found struct {
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peerURLs"`
	ClientURLs []string `json:"clientURLs"`
}

func (c *ServerConfig) scheme() string {
	if c.TLS.Cert != "" {
		return "https"
	}
	return "http"
}

func (c *ServerConfig) url(addr string) string {
	u := url.URL{Scheme: c.scheme(), Host: addr}
	return u.String()
}

// self is this member's entry in the list.
func (c *ServerConfig) self() (m Member, listed bool) {
	i := slices.IndexFunc(c.Members, func(m Member) bool { return m.Name == c.Name })
	if i < 0 {
		return Member{Name: c.Name}, false
	}
	return c.Members[i], true
}

// begin starts etcd: on the data that there is, as one of those that begin a cluster together, or as a new member of a cluster that is there.
func (s *Server) begin(ctx context.Context, e *embed.Config) (err error) {
	info := e.PeerTLSInfo
	t, err := transport.NewTransport(info, probeTime)
	if err != nil {
		return err
	}
	t.DisableKeepAlives = true // each question finds out whether there is anybody
	s.peers = &http.Client{Transport: t, Timeout: probeTime}
	self, listed := s.cfg.self()
	data := wal.Exist(filepath.Join(e.Dir, "member", "wal"))
	if data && s.cfg.New {
		return errors.New("it has data, and goes on with it: leave --manager-new out, which is for the first start of a new cluster; to forget the cluster that it has, remove the directory")
	}
	if !listed || data {
		s.etcd, err = embed.StartEtcd(e)
		return err
	}
	ctx, end := context.WithTimeout(ctx, joinTime)
	defer end()
	var said error // by the last attempt that had its time
	for {
		if e.ClusterState, err = s.meet(ctx, self, e); err == nil {
			if s.etcd, err = embed.StartEtcd(e); err == nil || e.ClusterState == embed.ClusterStateFlagNew {
				return err
			}
		}
		if ctx.Err() == nil || said == nil {
			said = err
		}
		final := errors.Is(err, errNobody) || errors.Is(err, cluster.ErrForbidden) || errors.Is(err, cluster.ErrRunning)
		select {
		case <-time.After(agreeTime):
		case <-ctx.Done():
			final = true
			if cause := context.Cause(ctx); !errors.Is(said, cause) {
				said = fmt.Errorf("%w (%w)", said, cause)
			}
		}
		if final {
			return fmt.Errorf("it has no data yet, and cannot join the cluster of the other managers: %w", said)
		}
	}
}

// errNobody: a member would have to join, and was not told how.
var errNobody = errors.New("they have a cluster without this member, or with an earlier life of it, whose data is lost: give the managers' addresses (peers, managers), or have the member removed")

// meet asks the other members for the list of members, and joins where they have a cluster already. Where none answers, a member that was told to
// begins.
func (s *Server) meet(ctx context.Context, self Member, e *embed.Config) (state string, err error) {
	list, mute := s.others(ctx)
	if ctx.Err() != nil { // then silence says nothing
		return "", context.Cause(ctx)
	}
	own := slices.IndexFunc(list, func(f found) bool { return f.Name == self.Name || slices.Contains(f.PeerURLs, s.cfg.url(self.Addr)) })
	switch {
	case len(list) > 0 && s.cfg.New:
		return "", fmt.Errorf("%w: the managers %s have a cluster: leave --manager-new out to join it; to begin another one, end them first", cluster.ErrRunning, names(list))
	case own >= 0 && list[own].Name != "" && len(list[own].ClientURLs) == 0:
		return embed.ClusterStateFlagNew, nil // all begin now
	case len(list) == 0 && mute != nil: // it may have a cluster, of which this was a member
		return "", mute
	case len(list) == 0 && s.cfg.New:
		return embed.ClusterStateFlagNew, nil
	case len(list) == 0: // one of them may have a cluster; if all began without it, there would be two
		return "", errors.New("no other manager answers at its address in manager_peers: start those that have data; if there has never been a cluster of these managers, start one of them with --manager-new")
	}
	if s.cfg.Join == nil {
		return "", errNobody
	}
	all, err := s.cfg.Join(ctx, self)
	if err != nil {
		return "", err
	}
	var initial []string
	for i, m := range all {
		name := m.Name
		switch {
		case m.Addr == self.Addr:
			name = self.Name
		case name == "": // it has not started yet
			name = fmt.Sprint("member-", i)
		}
		initial = append(initial, name+"="+s.cfg.url(m.Addr))
	}
	e.InitialCluster = strings.Join(initial, ",")
	return embed.ClusterStateFlagExisting, nil
}

// names are the members' names.
func names(list []found) string {
	var all []string
	for _, f := range list {
		all = append(all, f.Name)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// others is what the first of the other members that answers says. If none does, mute says which one takes connections all the same.
func (s *Server) others(ctx context.Context) (list []found, mute error) {
	for _, m := range s.cfg.Members {
		if m.Name == s.cfg.Name {
			continue
		}
		at := s.cfg.url(m.Addr)
		list, there, err := s.probe(ctx, at)
		switch {
		case err == nil && len(list) > 0:
			return list, nil
		case there:
			mute = fmt.Errorf("manager %s runs at %s, and does not say who the members are (%w): look whether both have certificates of one authority for their hosts", m.Name, at, err)
		}
	}
	return nil, mute
}

// probe asks a member for the list of members. there reports whether it takes connections at all.
func (s *Server) probe(ctx context.Context, at string) (list []found, there bool, err error) {
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		ConnectDone: func(_, _ string, err error) {
			if err == nil {
				connected.Store(true)
			}
		},
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/members", nil)
	if err != nil {
		return nil, false, err
	}
	r, err := s.peers.Do(req)
	if err != nil {
		return nil, connected.Load(), err
	}
	defer r.Body.Close()
	if err = json.NewDecoder(io.LimitReader(r.Body, maxProbe)).Decode(&list); err == nil && len(list) == 0 {
		err = errors.New("it names none")
	}
	return list, true, err
}

// closePeers ends the connections of questions.
func (s *Server) closePeers() {
	if s.peers != nil {
		s.peers.CloseIdleConnections()
	}
}

// agree has the cluster know this member as it is: with a vote, once it has caught up, and by the address that it listens at now.
func (s *Server) agree(ctx context.Context) {
	var said error
	for ctx.Err() == nil {
		done, err := s.agreeOnce(ctx)
		if done {
			close(s.agreed)
			return
		}
		if err != nil && said == nil && s.cfg.Log != nil {
			s.cfg.Log.Info("etcd: this member is not a full one yet; trying on", "err", err)
		}
		said = err
		select {
		case <-time.After(agreeTime):
		case <-ctx.Done():
		}
	}
}

func (s *Server) agreeOnce(ctx context.Context) (done bool, err error) {
	ctx, end := context.WithTimeout(ctx, callTime)
	defer end()
	r, err := s.client.MemberList(ctx)
	if err != nil {
		return false, err
	}
	id := uint64(s.etcd.Server.MemberID())
	i := slices.IndexFunc(r.Members, func(m *etcdserverpb.Member) bool { return m.GetID() == id })
	if i < 0 {
		return false, fmt.Errorf("%w: %s", cluster.ErrNoMember, s.cfg.Name)
	}
	self, listed := s.cfg.self()
	switch at := s.cfg.url(self.Addr); {
	case listed && !slices.Equal(r.Members[i].GetPeerURLs(), []string{at}):
		_, err = s.client.MemberUpdate(ctx, id, []string{at})
	case r.Members[i].GetIsLearner():
		_, err = s.client.MemberPromote(ctx, id)
	default:
		return true, nil
	}
	return false, err
}

// Members implements cluster.Membership.
func (s *Server) Members(ctx context.Context) ([]cluster.StoreMember, error) {
	ctx, end := context.WithTimeout(ctx, callTime)
	defer end()
	r, err := s.client.MemberList(ctx)
	if err != nil {
		return nil, s.store.fail(ctx, "members", err)
	}
	list := s.members(r.Members)
	s.markSilent(ctx, list)
	return list, nil
}

// markSilent notes which of the other members do not answer, asking all at once.
func (s *Server) markSilent(ctx context.Context, list []cluster.StoreMember) {
	var work sync.WaitGroup
	for i := range list {
		if m := &list[i]; m.Started && m.Name != s.cfg.Name {
			work.Go(func() {
				_, _, err := s.probe(ctx, s.cfg.url(m.Addr))
				m.Silent = err != nil
			})
		}
	}
	work.Wait()
}

func (s *Server) members(list []*etcdserverpb.Member) []cluster.StoreMember {
	out := make([]cluster.StoreMember, len(list))
	for i, m := range list {
		to := &out[i]
		to.Name, to.Voting, to.Started = m.GetName(), !m.GetIsLearner(), m.GetName() != ""
		if urls := m.GetPeerURLs(); len(urls) > 0 {
			_, to.Addr, _ = strings.Cut(urls[0], "://")
		}
		if at := slices.IndexFunc(s.cfg.Members, func(m Member) bool { return m.Addr == to.Addr }); to.Name == "" && at >= 0 {
			to.Name = s.cfg.Members[at].Name
		}
	}
	slices.SortFunc(out, func(a, b cluster.StoreMember) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Join implements cluster.Membership. The member begins without a vote, and asks for one itself once it has caught up.
func (s *Server) Join(ctx context.Context, name, addr string) ([]cluster.StoreMember, error) {
	ctx, end := context.WithTimeout(ctx, callTime)
	defer end()
	r, err := s.changeable(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range r {
		at := slices.Contains(m.GetPeerURLs(), s.cfg.url(addr))
		switch {
		case m.GetName() != name && !at:
			continue
		case m.GetName() == "":
			return s.members(r), nil // it was taken in before, and has not started yet
		}
		for _, u := range m.GetPeerURLs() {
			if _, there, _ := s.probe(ctx, u); there { // even if it is too busy to answer
				return nil, fmt.Errorf("%w: %s is running at %s: end it first, or give this manager another name and address", cluster.ErrRunning, m.GetName(), u)
			}
		}
		if _, err := s.client.MemberRemove(ctx, m.GetID()); err != nil {
			return nil, s.store.fail(ctx, "replace "+name, err)
		}
	}
	added, err := s.client.MemberAddAsLearner(ctx, []string{s.cfg.url(addr)})
	if err != nil {
		return nil, s.store.fail(ctx, "add "+name, err)
	}
	return s.members(added.Members), nil
}

// changeable lists the members, once this member itself is a full one.
func (s *Server) changeable(ctx context.Context) ([]*etcdserverpb.Member, error) {
	select {
	case <-s.agreed:
	default:
		return nil, fmt.Errorf("%w: %s is not a full member yet: ask another manager, or again soon", cluster.ErrAway, s.cfg.Name)
	}
	if len(s.cfg.Members) == 0 {
		return nil, fmt.Errorf("%w: %s keeps the state alone, and listens for no other member: start it again with --manager-peers", cluster.ErrRunning, s.cfg.Name)
	}
	r, err := s.client.MemberList(ctx)
	if err != nil {
		return nil, s.store.fail(ctx, "members", err)
	}
	return r.Members, nil
}

// Leave implements cluster.Membership.
func (s *Server) Leave(ctx context.Context, name string) error {
	ctx, end := context.WithTimeout(ctx, callTime)
	defer end()
	list, err := s.changeable(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, m := range s.members(list) {
		names = append(names, m.Name)
	}
	at := slices.IndexFunc(list, func(m *etcdserverpb.Member) bool { return s.members([]*etcdserverpb.Member{m})[0].Name == name })
	switch {
	case at < 0:
		return fmt.Errorf("%w: %q: there are %s", cluster.ErrNoMember, name, strings.Join(names, ", "))
	case len(list) == 1:
		return fmt.Errorf("%w: %s alone keeps the state", cluster.ErrRunning, name)
	case list[at].GetID() == uint64(s.etcd.Server.MemberID()):
		return fmt.Errorf("%w: %s does not remove itself: another manager does", cluster.ErrAway, name)
	}
	_, err = s.client.MemberRemove(ctx, list[at].GetID())
	return s.store.fail(ctx, "remove "+name, err)
}

var _ cluster.Membership = (*Server)(nil)
