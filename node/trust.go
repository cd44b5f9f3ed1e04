package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"gopkg.in/yaml.v3"

	"github.com/wherry-fabric/wherry/inject/forms"
	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/trust"
	"github.com/wherry-fabric/wherry/inject/xrdma"
)

// TrustedKey is a key whose signature makes this node run native code. It is what stands under trust in a configuration file,
// and in a trust file, which wherry fn keys writes.
type TrustedKey struct {
	Name string `yaml:"name" json:"name"`
	Key  string `yaml:"key" json:"key"` // 64 hex digits
	// Forms are "bitcode" and "elf"; none: both.
	Forms []string `yaml:"forms,omitempty,flow" json:"forms,omitempty"`
	// Names are those of functions; one that ends with "*" stands for all that begin like it. None: all functions.
	Names []string `yaml:"names,omitempty,flow" json:"names,omitempty"`
}

// maxTrustBytes bounds a trust file.
const maxTrustBytes = 256 << 10

// ReadTrust reads a trust file: a YAML list of keys.
func ReadTrust(r io.Reader) ([]TrustedKey, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxTrustBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxTrustBytes {
		return nil, fmt.Errorf("a trust file of more than %d bytes", maxTrustBytes)
	}
	var keys []TrustedKey
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&keys); err != nil && !errors.Is(err, io.EOF) {
		return nil, plainYAML(err)
	}
	_, err = TrustPolicy(keys)
	return keys, err
}

// WriteTrust writes a trust file.
func WriteTrust(w io.Writer, keys []TrustedKey) error {
	text, err := yaml.Marshal(keys)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// TrustPolicy makes a policy of keys. The ready functions, which come with the program, are trusted by their identity.
func TrustPolicy(keys []TrustedKey) (*trust.Policy, error) {
	var list []trust.Key
	for _, k := range keys {
		public, err := trust.Parse(k.Key)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", k.Name, err)
		}
		key := trust.Key{Name: k.Name, Public: public, Names: k.Names}
		for _, text := range k.Forms {
			switch w, err := forms.ParseWish(text); {
			case err == nil && w == forms.Bitcode:
				key.Forms = append(key.Forms, image.LLVMBitcode)
			case err == nil && w == forms.ELF:
				key.Forms = append(key.Forms, image.ELF)
			default:
				return nil, fmt.Errorf("key %s: form %q: those that need a signature are bitcode and elf", k.Name, text)
			}
		}
		list = append(list, key)
	}
	var ready []image.ID
	for _, name := range xrdma.List() {
		img, err := xrdma.Lookup(name)
		if err != nil {
			return nil, err
		}
		ready = append(ready, img.ID())
	}
	return trust.New(list, ready...)
}

// validateNative checks what the configuration says of native code.
func (c *Config) validateNative() error {
	if c.Native == "" {
		c.Native = nativeOff
	}
	if c.Native != nativeOff && c.Native != nativeWorker && c.Native != nativeInProcess {
		return fmt.Errorf("native %q: it is %s, %s or %s", c.Native, nativeOff, nativeWorker, nativeInProcess)
	}
	_, err := c.trust()
	return err
}

// FileOwner stands for the user that a trust file belongs to, where it is not known as which user a node runs.
const FileOwner = -1

// ReadTrustFile reads a trust file as a node does that runs as the user uid: it refuses a file that other users may write.
func ReadTrustFile(path string, uid int) ([]TrustedKey, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := othersCannotWrite(f, uid); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	keys, err := ReadTrust(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return keys, nil
}

// othersCannotWrite refuses a file that users other than uid and root could change: a trust file decides whose native code runs.
func othersCannotWrite(f *os.File, uid int) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("others may write it (mode %#o); run chmod go-w", mode)
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && uid != FileOwner && s.Uid != 0 && int(s.Uid) != uid {
		return fmt.Errorf("it belongs to user %d; it has to be this user's or root's", s.Uid)
	}
	return nil
}

// trust is what the configuration and its trust file say together; where native code is off, that is no key.
func (c *Config) trust() (*trust.Policy, error) {
	keys := c.Trust
	if c.TrustFile != "" {
		more, err := ReadTrustFile(c.TrustFile, os.Geteuid())
		if err != nil {
			return nil, fmt.Errorf("trust_file: %w", err)
		}
		keys = append(append([]TrustedKey(nil), keys...), more...)
	}
	policy, err := TrustPolicy(keys)
	if err == nil && c.Native == nativeOff {
		return trust.Nobody(nativeIsOff), nil
	}
	return policy, err
}
