package node

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
	"github.com/wherry-fabric/wherry/fabric"
	"github.com/wherry-fabric/wherry/fabric/schemes"
	"github.com/wherry-fabric/wherry/inject"
	"github.com/wherry-fabric/wherry/schema"
)

// Defaults and limits of a Config.
const (
	DefaultMemory   Bytes = 1 << 30
	DefaultStopTime       = 10 * time.Second
	DefaultLoadTime       = 2 * time.Minute
	// MinCodeCache is the least code_cache_bytes: a few functions' machine code.
	MinCodeCache Bytes = 1 << 20
	// maxDataRoots bounds the directories that files are loaded from.
	maxDataRoots = 64
	// maxConfigBytes bounds a configuration file.
	maxConfigBytes = 1 << 20
)

// Config describes a node. The zero value of a field is its usual value; Name,
// Listen and TokenFile (or Tokens, or TLS) must be given. The yaml names are those of the
// configuration file; docs/operations.md explains each.
type Config struct {
	Name   string   `yaml:"name"`
	Listen []string `yaml:"listen"` // "tcp://127.0.0.1:7000", "shm:///run/wherry/a.sock"; a tcp port may be 0
	// Advertise is what others are told to dial; empty: what is listened at.
	Advertise []string         `yaml:"advertise"`
	Peers     []cluster.Member `yaml:"peers"` // static; this node's own entry is passed over

	Memory Bytes `yaml:"memory"` // lent at most; DefaultMemory
	// PoolMemory is how much of Memory regions of the pool may take; 0: the node lends no regions.
	PoolMemory Bytes `yaml:"pool_memory"`
	// Lend are the devices that the node lends, as in nvme=disk0:/srv/disk.img,readonly (docs/devices.md).
	Lend []string `yaml:"lend"`
	// LendGrants is the file that keeps the grants to borrow them; "": they are forgotten when the node ends.
	LendGrants string `yaml:"lend_grants"`

	DataRoots []string `yaml:"data_roots"` // directories that --at may load from; none: it is refused

	// Managers are the names of the peers that manage the cluster: this node registers with one of them. Itself is known, where it is one.
	Managers []string `yaml:"managers"`
	// Manager makes this node a manager whose etcd member keeps its data in that directory; ManagerPeers are all such members, this one too, with
	// the addresses host:port at which they speak to each other; empty: it is alone. ManagerNew makes it begin their cluster: for one of them, and
	// for its first start only, so no file has it. Etcd makes it a manager on an etcd cluster that is there already. OpenStore opens either.
	Manager      string                        `yaml:"manager"`
	ManagerPeers []ManagerPeer                 `yaml:"manager_peers"`
	ManagerNew   bool                          `yaml:"-"`
	Etcd         []string                      `yaml:"etcd"` // "http://host:2379", "https://host:2379"
	EtcdCert     string                        `yaml:"etcd_cert"`
	EtcdKey      string                        `yaml:"etcd_key"`
	EtcdCA       string                        `yaml:"etcd_ca"`
	OpenStore    func(*Config) (*Store, error) `yaml:"-"`

	TokenFile string `yaml:"token_file"` // mode 0600
	Token     string `yaml:"token"`      // the token this node shows; "": the only one with capability member

	TLS ca.Settings `yaml:",inline"` // tls, tls_cert, tls_key, tls_ca, tls_crl: for all tcp addresses, or none

	Policy   string `yaml:"policy"`   // balanced (default), latency, efficient
	Insecure bool   `yaml:"insecure"` // allow addresses beyond loopback without TLS
	HTTP     string `yaml:"http"`     // host:port of /metrics, /healthz and /readyz; "": none

	CodeCache      string `yaml:"code_cache"`       // directory of compiled functions; "": memory only
	CodeCacheBytes Bytes  `yaml:"code_cache_bytes"` // 0: the cache's own default

	// Native is where bitcode and ELF objects run: "off", nowhere (default), "worker", in processes of their own, which are this program
	// started once more: it must call native.Main first of all; or "in-process", in this one, where nothing contains them (docs/native.md).
	Native string `yaml:"native"`
	// Compiler starts wherry-llvm, which compiles bitcode; empty: the one beside this program, or on PATH. UnconfinedCompiler has it work where it cannot
	// be locked down, as under QEMU's emulation of a processor: bitcode that takes it over can do what this node's user can.
	Compiler           []string `yaml:"compiler"`
	UnconfinedCompiler bool     `yaml:"unconfined_compiler"`
	// CompileTime is the processor time that compiling one function in a compiler process may take; 0: compiler.DefaultDeadline for bitcode, wasm.DefaultCompileTime for wasm. On the clock a function has ten times as long, at least 10 s, to be made ready.
	CompileTime time.Duration `yaml:"compile_time"`
	// Trust and TrustFile name the keys whose signatures native code needs; the file is a YAML list of the same.
	Trust     []TrustedKey `yaml:"trust"`
	TrustFile string       `yaml:"trust_file"`

	StopTime time.Duration `yaml:"stop_time"` // how long what is under way may take to finish; DefaultStopTime
	LoadTime time.Duration `yaml:"load_time"` // how long a load may be idle before it is freed; DefaultLoadTime

	// LimitsByName are limits that messages name, as in max_instances or functions.held_runs, and their values, as in 512, 64MiB or 30s.
	LimitsByName map[string]string `yaml:"limits"`

	Worker []string `yaml:"-"` // the command that becomes workers, if that is not this program
	// WasmCompiler is the command of processes that call wasm.ServeCompiler: functions that may take long are compiled there, and refused where no such process starts. Empty: in this process, bounded by their shape only.
	WasmCompiler []string        `yaml:"-"`
	Tokens       *cluster.Tokens `yaml:"-"` // instead of TokenFile
	Schemes      fabric.Schemes  `yaml:"-"` // transports that addresses can name; nil: schemes.All
	Limits       fabric.Limits   `yaml:"-"` // LentBytes is set from Memory; LimitsByName wins
	Program      string          `yaml:"-"` // the program's version, shown by info
	Log          *slog.Logger    `yaml:"-"` // nil: silent
	// Output gets what functions log here; nil: Log does.
	Output func(element, function, text string) `yaml:"-"`
	Tracer inject.Tracer                        `yaml:"-"` // makes spans of the functions that run here; nil: none
}

// ManagerPeer is an etcd member inside a node.
type ManagerPeer struct {
	Name string `yaml:"name"`
	Addr string `yaml:"addr"` // host:port
}

// ReadConfig reads a configuration file (one YAML document). A key that is not known is an error.
func ReadConfig(r io.Reader) (Config, error) {
	var c Config
	text, err := io.ReadAll(io.LimitReader(r, maxConfigBytes+1))
	if err != nil {
		return c, fmt.Errorf("node: configuration: %w", err)
	}
	if len(text) > maxConfigBytes {
		return c, fmt.Errorf("node: configuration: more than %d bytes", maxConfigBytes)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, fmt.Errorf("node: configuration: %w", plainYAML(err))
	}
	var more yaml.Node
	switch err := d.Decode(&more); {
	case err == nil:
		return c, fmt.Errorf("node: configuration: line %d: a second YAML document begins, and a node has one configuration: remove this ---, or keep the rest in a file of its own", more.Line)
	case !errors.Is(err, io.EOF):
		return c, fmt.Errorf("node: configuration: %w", plainYAML(err))
	}
	return c, nil
}

// misfit is what package yaml says of a value that does not fit its key: line, tag and beginning of the value, Go's type.
var misfit = regexp.MustCompile("(?s)^(line \\d+): cannot unmarshal (.*?)(?: `(.*)`)? into (\\S+)$")

// wanted and found are misfit's types and tags in words.
var (
	wanted = map[string]string{"[]string": `a list, as in ["a", "b"],`, "map[string]string": "a list of names with values, as in max_instances: 512,", "[]cluster.Member": "a list of entries with name and addrs", "[]node.ManagerPeer": "a list of entries with name and addr", "node.ManagerPeer": "an entry with name and addr", "[]node.TrustedKey": "a list of entries with name and key", "node.TrustedKey": "an entry with name and key", "cluster.Member": "an entry with name and addrs",
		"string": "text", "bool": "true or false", "node.Bytes": "a size, as in 512MiB,", "time.Duration": "a time, as in 30s,", "node.Config": "a key with its value, as in name: n1,"}
	found = map[string]string{"!!str": "text", "!!seq": "a list", "!!map": "keys with values", "!!int": "a number", "!!float": "a number", "!!bool": "true or false", "!!null": "nothing", "!!timestamp": "a date"}
)

// configKeys are the names of a configuration's keys.
func configKeys() (keys []string) {
	t := reflect.TypeFor[Config]()
	for i := range t.NumField() {
		if key, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ","); key != "" && key != "-" {
			keys = append(keys, key)
		}
	}
	return keys
}

// plainYAML says what is wrong with a file without naming types of this program.
func plainYAML(err error) error {
	var types *yaml.TypeError
	if !errors.As(err, &types) {
		return err
	}
	var all []string
	for _, text := range types.Errors {
		line, rest, _ := strings.Cut(text, ": field ")
		if key, of, unknown := strings.Cut(rest, " not found in type "); unknown {
			text = fmt.Sprintf("%s: there is no key %q (docs/operations.md lists them)", line, key)
			if hint := schema.Suggest(key, configKeys()); of == "node.Config" && strings.HasPrefix(hint, "did you mean") {
				text += "; " + hint
			}
		}
		if m := misfit.FindStringSubmatch(text); m != nil {
			text = fmt.Sprintf("%s: %s is needed here, and this is %s: %s", m[1], cmp.Or(wanted[m[4]], "something else"), cmp.Or(found[m[2]], m[2]), m[3])
			text = strings.TrimSuffix(text, ": ")
		}
		all = append(all, text)
	}
	return errors.New(strings.Join(all, "; "))
}

// Validate fills in defaults and reports what is wrong.
func (c *Config) Validate() error {
	if c.Memory == 0 {
		c.Memory = DefaultMemory
	}
	if c.Schemes == nil {
		c.Schemes = schemes.All()
	}
	if c.StopTime == 0 {
		c.StopTime = DefaultStopTime
	}
	if c.LoadTime == 0 {
		c.LoadTime = DefaultLoadTime
	}
	if c.Name == "" {
		return errors.New("node: no name: give --name NAME, or name in the configuration file")
	}
	if err := cluster.ValidateName(c.Name); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	if err := c.validateMemory(); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	if c.StopTime < 0 || c.LoadTime < 0 || c.CompileTime < 0 || c.CodeCacheBytes < 0 {
		return errors.New("node: stop_time, load_time, compile_time and code_cache_bytes cannot be negative")
	}
	if c.CompileTime > maxCompileTime {
		return fmt.Errorf("node: compile_time %v: at most %v, for one function holds the compiler for as long", c.CompileTime, maxCompileTime)
	}
	if c.CodeCacheBytes != 0 && c.CodeCacheBytes < MinCodeCache {
		return fmt.Errorf("node: code_cache_bytes %v: at least %v", c.CodeCacheBytes, MinCodeCache)
	}
	if _, err := c.setLimits(); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	if c.Policy != "" {
		if _, err := fabric.ParsePolicy(c.Policy); err != nil {
			return fmt.Errorf("node: policy: %w", err)
		}
	}
	if _, err := c.lendings(); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	if err := c.validateNative(); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	if err := c.TLS.Validate(); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	if c.TokenFile == "" && c.Tokens == nil && !c.TLS.On() {
		return errors.New("node: no token_file and no certificate: a node serves nobody without one of them; make one with: wherry token new NAME --node --file FILE")
	}
	if err := c.validateAddrs(); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	if err := c.validateManagers(); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	if err := c.validateRoots(); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	for i := range c.Peers {
		if err := c.validatePeer(&c.Peers[i]); err != nil {
			return fmt.Errorf("node: peers: %w", err)
		}
	}
	if len(c.Peers) > cluster.MaxMembers {
		return fmt.Errorf("node: %d peers, at most %d are allowed", len(c.Peers), cluster.MaxMembers)
	}
	return nil
}

func (c *Config) validateRoots() error {
	if len(c.DataRoots) > maxDataRoots {
		return fmt.Errorf("%d data_roots, at most %d are allowed", len(c.DataRoots), maxDataRoots)
	}
	for _, dir := range c.DataRoots {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("data root %q is not an absolute path", dir)
		}
	}
	return nil
}

func (c *Config) validateMemory() error {
	if c.Memory < fabric.SegmentAlign {
		return fmt.Errorf("memory %v: at least %v", c.Memory, Bytes(fabric.SegmentAlign))
	}
	if has, ok := machineMemory(); ok && c.Memory > has {
		return fmt.Errorf("memory %v: this machine has %v; lend less", c.Memory, has)
	}
	if c.PoolMemory < 0 || c.PoolMemory > c.Memory {
		return fmt.Errorf("pool_memory %v is part of memory, %v: it cannot be more; raise memory, too", c.PoolMemory, c.Memory)
	}
	return nil
}

const (
	needTLS  = "beyond loopback TLS is needed: give tls_cert, tls_key and tls_ca (wherry ca init makes tls_ca, wherry ca issue NAME --node the others), or set insecure on a network that you trust"
	needHTTP = "metrics tell who does what, and this is plain HTTP: keep to loopback, or set insecure on a network that you trust"
)

// validatePeer refuses a peer that this node would never dial.
func (c *Config) validatePeer(m *cluster.Member) error {
	if err := m.Validate(); err != nil {
		return err
	}
	for _, a := range m.Addrs {
		if err := c.Schemes.Check(a); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	if !c.Insecure && !c.TLS.On() && m.Name != c.Name && !slices.ContainsFunc(m.Addrs, c.Schemes.Loopback) {
		return fmt.Errorf("%s (%s): %s", m.Name, strings.Join(m.Addrs, ", "), needTLS)
	}
	return nil
}

func (c *Config) validateAddrs() error {
	if len(c.Listen) == 0 {
		return errors.New("listen names no address, as in tcp://127.0.0.1:7000")
	}
	if len(c.Listen) > cluster.MaxAddrs || len(c.Advertise) > cluster.MaxAddrs {
		return fmt.Errorf("%d addresses to listen at and %d to advertise, at most %d are allowed", len(c.Listen), len(c.Advertise), cluster.MaxAddrs)
	}
	for _, a := range c.Listen {
		if err := c.validateListen(a); err != nil {
			return fmt.Errorf("listen: %w", err)
		}
	}
	for _, a := range c.Advertise {
		if err := cmp.Or(cluster.ValidateAddr(a), c.Schemes.Check(a)); err != nil {
			return fmt.Errorf("advertise: %w", err)
		}
	}
	if c.HTTP != "" {
		_, port, err := net.SplitHostPort(c.HTTP)
		if err == nil {
			_, err = net.LookupPort("tcp", port)
		}
		if err != nil {
			return fmt.Errorf("http: %q is not host:port: %w", c.HTTP, err)
		}
		if !c.Insecure && !fabric.LoopbackHost(c.HTTP) {
			return fmt.Errorf("http: %s: %s", c.HTTP, needHTTP)
		}
	}
	return nil
}

// validateListen checks one address to listen at.
func (c *Config) validateListen(a string) error {
	name, place, err := fabric.SplitAddr(a)
	if err != nil {
		return err
	}
	schemes, err := c.Schemes.Pick(name)
	if err != nil {
		return fmt.Errorf("%s: %w", a, err)
	}
	if schemes[0].Local() {
		if c.TokenFile == "" && c.Tokens == nil {
			return fmt.Errorf("%s: certificates are shown over networks only, so %s needs token_file", a, name)
		}
		return nil
	}
	if strings.Contains(place, ",") {
		return fmt.Errorf("%s: this is one address, and no host has a comma: give each by itself (--listen again)", a)
	}
	if !c.Insecure && !c.TLS.On() && !c.Schemes.Loopback(a) {
		return fmt.Errorf("%s: %s", a, needTLS)
	}
	host, err := schemes[0].Host(place)
	if err != nil {
		return fmt.Errorf("%s %w", a, err)
	}
	if ip := net.ParseIP(host); (host == "" || ip != nil && ip.IsUnspecified()) && len(c.Advertise) == 0 {
		return fmt.Errorf("%s is every address of this machine: say with --advertise (advertise in the configuration file) what others shall dial", a)
	}
	return nil
}

// addrs are all that are listened at or dialled.
func (c *Config) addrs() []string {
	all := slices.Clone(c.Listen)
	for _, p := range c.Peers {
		all = append(all, p.Addrs...)
	}
	return all
}
