package node

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
	"github.com/wherry-fabric/wherry/control"
)

// reloadable are the keys of a configuration file that Reload changes while the node runs, and what changes them. docs/operations.md lists them.
var reloadable = map[string]func(to, from *Config){
	"advertise":   func(to, from *Config) { to.Advertise = from.Advertise },
	"peers":       func(to, from *Config) { to.Peers = from.Peers },
	"memory":      func(to, from *Config) { to.Memory = from.Memory },
	"pool_memory": func(to, from *Config) { to.PoolMemory = from.PoolMemory },
	"data_roots":  func(to, from *Config) { to.DataRoots = from.DataRoots },
	"token_file":  func(to, from *Config) { to.TokenFile, to.Tokens = from.TokenFile, from.Tokens },
	"token":       func(to, from *Config) { to.Token = from.Token },
	"tls_cert":    func(to, from *Config) { to.TLS.Cert = from.TLS.Cert },
	"tls_key":     func(to, from *Config) { to.TLS.Key = from.TLS.Key },
	"tls_ca":      func(to, from *Config) { to.TLS.CA = from.TLS.CA },
	"tls_crl":     func(to, from *Config) { to.TLS.CRL = from.TLS.CRL },
	"native":      func(to, from *Config) { to.Native = from.Native },
	"trust":       func(to, from *Config) { to.Trust = from.Trust },
	"trust_file":  func(to, from *Config) { to.TrustFile = from.TrustFile },
	"stop_time":   func(to, from *Config) { to.StopTime = from.StopTime },
	"load_time":   func(to, from *Config) { to.LoadTime = from.LoadTime },
}

// Reload makes the node go by another configuration, and reads the files again that it names: tokens, trusted keys, certificates, the list of revoked
// ones. Datasets and connections stay, but for connections whose token or certificate is good no longer. Everything is
// read and checked first: with an error nothing has changed. It returns the keys whose value differs and which a restart only can change.
func (n *Node) Reload(c Config) (restart []string, err error) {
	n.reloading.Lock()
	defer n.reloading.Unlock()
	if n.stopping.Load() {
		return nil, control.ErrStopping
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	now := *n.live.Load()
	restart = needRestart(&now, &c)
	if c.Native != nativeOff && c.Native != n.cfg.Native {
		restart, c.Native = append(restart, "native"), now.Native // there is no such engine in this process
	}
	if c.TLS.On() != now.TLS.On() { // the keys beside it would have no meaning
		return nil, fmt.Errorf("node: TLS is %s now and would be %s: that takes a restart", onOff(now.TLS.On()), onOff(c.TLS.On()))
	}
	if c.hasTokens() != now.hasTokens() {
		return nil, errors.New("node: there is a token_file only before or only after the change: that takes a restart")
	}
	if err := n.reachable(c.Peers); err != nil {
		return nil, err
	}
	auth, id, err := c.identify(n.log)
	if err != nil {
		return nil, err
	}
	policy, err := c.trust()
	if err != nil {
		return nil, err
	}
	dirs, err := openRoots(c.DataRoots)
	if err != nil {
		return nil, err
	}
	if id != nil {
		if err := n.tls.Replace(id); err != nil { // the last that can fail
			dirs.close()
			return nil, err
		}
	}
	for _, set := range reloadable {
		set(&now, &c)
	}
	n.live.Store(&now)
	n.roots.replace(dirs)
	n.apply(&now)
	n.readmit(n.auth.Replace(auth))
	n.rt.SetTrust(policy)
	return restart, nil
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func (c *Config) hasTokens() bool { return c.Tokens != nil || c.TokenFile != "" }

// reachable says which peer's addresses need a transport that the node was not started with.
func (n *Node) reachable(peers []cluster.Member) error {
	for _, m := range peers {
		for _, a := range m.Addrs {
			if s, _ := n.schemes.Of(a); s == nil && m.Name != n.cfg.Name {
				return fmt.Errorf("node: peers: %s (%s): the node was started without this transport: that takes a restart", m.Name, a)
			}
		}
	}
	return nil
}

// apply makes what the node has built follow its configuration.
func (n *Node) apply(c *Config) {
	n.el.SetLentBytes(int64(c.Memory) + n.callSegments)
	over, poolOver := n.account.SetBounds(n.shares.Bounds(int64(c.Memory), int64(c.PoolMemory)))
	if over > 0 {
		n.log.Warn("more is lent than memory allows: nothing more is lent until datasets or regions are removed", "memory", c.Memory, "over", Bytes(over))
	}
	if poolOver > 0 {
		n.log.Warn("regions have more than pool_memory allows: none is made until some are destroyed", "pool_memory", c.PoolMemory, "over", Bytes(poolOver))
	}
	n.advertise(c.Advertise)
	added, removed := n.links.Keep(n.members(c.Peers))
	for _, name := range added {
		n.log.Info("peer added", "peer", name)
	}
	for _, name := range removed {
		n.log.Info("peer removed: it is not dialled any more; a connection that there is stays until it ends", "peer", name)
	}
}

// readmit ends the connections whose token or certificate is good no longer, and takes back the keys of those whose token was withdrawn.
func (n *Node) readmit(withdrawn []string) {
	n.data.takeBack(withdrawn)
	n.pool.TakeBack(withdrawn)
	if ended, who := n.el.Readmit(); ended > 0 {
		n.log.Warn("connections ended: their tokens were withdrawn or changed", "principals", strings.Join(who, ","), "connections", ended)
	}
	if n.tls != nil {
		if ended := n.made.Recheck(); ended > 0 {
			n.log.Warn("connections ended: their certificates are not good any more", "connections", ended)
		}
	}
}

// needRestart are the keys in which two configurations differ and that Reload does not change.
func needRestart(old, c *Config) (keys []string) {
	was, is := settings(old), settings(c)
	for _, key := range slices.Sorted(maps.Keys(is)) {
		if reloadable[key] == nil && !reflect.DeepEqual(was[key], is[key]) {
			keys = append(keys, key)
		}
	}
	return keys
}

// settings are a configuration's values by their keys in a file.
func settings(c *Config) map[string]any {
	out := map[string]any{}
	for _, v := range []reflect.Value{reflect.ValueOf(*c), reflect.ValueOf(ca.Settings(c.TLS))} {
		for _, f := range reflect.VisibleFields(v.Type()) {
			if key, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); key != "" && key != "-" {
				out[key] = v.FieldByIndex(f.Index).Interface()
			}
		}
	}
	return out
}
