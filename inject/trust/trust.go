// Package trust says whose native code an element runs. A sandbox contains wasm, so any principal that may inject may send it.
// LLVM bitcode and ELF objects run as machine code: an element takes them only if a key that it trusts has signed the image, or
// if it knows the image by its identity, as the ready functions that come with the program. Everything here is pure.
package trust

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-fabric/wherry/inject/image"
)

const (
	// MaxKeys bounds the keys of a policy: each is compared with each signature of an image that arrives.
	MaxKeys = 64
	// maxNames bounds the names of functions that one key is limited to.
	maxNames = 64
	// maxName is the longest name of a key.
	maxName = 64
)

// Key is a public key whose signature is believed.
type Key struct {
	Name   string // for people
	Public ed25519.PublicKey
	// Forms of code that the key can vouch for; none: every one that needs it.
	Forms []image.Form
	// Names of the functions that the key can vouch for. One that ends with "*" stands for all that begin like it; none: all functions.
	Names []string
}

// Validate reports what is wrong with a key.
func (k *Key) Validate() error {
	if k.Name == "" || len(k.Name) > maxName || !plain(k.Name) {
		return fmt.Errorf("trust: a key is called %q: its name has 1 to %d of a-z, A-Z, 0-9, -, _, . and @", k.Name, maxName)
	}
	if len(k.Public) != ed25519.PublicKeySize {
		return fmt.Errorf("trust: key %s has %d bytes, ed25519 keys have %d", k.Name, len(k.Public), ed25519.PublicKeySize)
	}
	for _, f := range k.Forms {
		if !Needed(f) {
			return fmt.Errorf("trust: key %s: %v needs no signature: forms are %v and %v", k.Name, f, image.LLVMBitcode, image.ELF)
		}
	}
	if len(k.Names) > maxNames {
		return fmt.Errorf("trust: key %s has %d names of functions, at most %d are allowed", k.Name, len(k.Names), maxNames)
	}
	for _, n := range k.Names {
		if n == "" || strings.Contains(strings.TrimSuffix(n, "*"), "*") {
			return fmt.Errorf("trust: key %s: %q is no name of a function: a * stands at the end only", k.Name, n)
		}
		if stem, open := strings.CutSuffix(n, "*"); stem != "" || !open {
			if err := image.CheckName(stem); err != nil {
				return fmt.Errorf("trust: key %s: no function is called that: %w", k.Name, err)
			}
		}
	}
	return nil
}

func plain(s string) bool {
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.@") == ""
}

// Needed reports whether code of a form has to be vouched for.
func Needed(f image.Form) bool { return f == image.LLVMBitcode || f == image.ELF }

// allows says why the key does not vouch for a function's code of a form; "": it does.
func (k *Key) allows(form image.Form, function string) string {
	if len(k.Forms) > 0 && !slices.Contains(k.Forms, form) {
		return fmt.Sprintf("key %s, which signed it, is trusted for %s only", k.Name, join(k.Forms))
	}
	fits := func(n string) bool {
		stem, open := strings.CutSuffix(n, "*")
		return function == n || open && strings.HasPrefix(function, stem)
	}
	if len(k.Names) > 0 && !slices.ContainsFunc(k.Names, fits) {
		return fmt.Sprintf("key %s, which signed it, is trusted for functions named %s only", k.Name, strings.Join(k.Names, ", "))
	}
	return ""
}

func join(forms []image.Form) string {
	var names []string
	for _, f := range forms {
		names = append(names, f.String())
	}
	return strings.Join(names, ", ")
}

// Policy is what an element trusts. It never changes. A nil Policy trusts nothing.
type Policy struct {
	keys  []Key
	known map[image.ID]bool
	why   string // it trusts nothing
}

// Nobody is a policy that trusts nothing, for a reason.
func Nobody(why string) *Policy { return &Policy{why: why} }

// New makes a policy of keys, and of images that are trusted by their identity.
func New(keys []Key, known ...image.ID) (*Policy, error) {
	if len(keys) > MaxKeys {
		return nil, fmt.Errorf("trust: %d keys, at most %d are allowed", len(keys), MaxKeys)
	}
	p := &Policy{keys: slices.Clone(keys), known: map[image.ID]bool{}}
	for i := range p.keys {
		k := &p.keys[i]
		if err := k.Validate(); err != nil {
			return nil, err
		}
		for _, other := range p.keys[:i] {
			if other.Name == k.Name || other.Public.Equal(k.Public) {
				return nil, fmt.Errorf("trust: the key %s (%s) is there twice, also as %s (%s)", k.Name, Short(k.Public), other.Name, Short(other.Public))
			}
		}
	}
	for _, id := range known {
		p.known[id] = true
	}
	return p, nil
}

// Keys returns the keys.
func (p *Policy) Keys() []Key {
	if p == nil {
		return nil
	}
	return slices.Clone(p.keys)
}

// Nobody says why a policy trusts nobody at all; "": it trusts somebody.
func (p *Policy) Nobody() string {
	switch {
	case p != nil && p.why != "":
		return p.why
	case p == nil || len(p.keys) == 0 && len(p.known) == 0:
		return "no key is trusted here"
	}
	return ""
}

// Verdict is what a policy says of an image. Verdicts of several copies of an image can be joined.
type Verdict struct {
	known   bool
	signers []*Key
	why     string // why there is none
	telling int    // how much that says: of several copies' reasons the one that says most is told
}

// Judge checks an image's signatures.
func (p *Policy) Judge(img *image.Image) Verdict {
	if why := p.Nobody(); why != "" {
		return Verdict{why: why}
	}
	v := Verdict{known: p.known[img.ID()]}
	var bad []string
	for i := range p.keys {
		_, err := img.Verify([]ed25519.PublicKey{p.keys[i].Public})
		switch {
		case err == nil:
			v.signers = append(v.signers, &p.keys[i])
		case errors.Is(err, image.ErrSignature):
			bad = append(bad, p.keys[i].Name)
		}
	}
	if len(v.signers) > 0 {
		return v // what is wrong otherwise, those keys say
	}
	switch signed := img.Signatures(); {
	case len(bad) > 0:
		v.telling = 2
		v.why = fmt.Sprintf("its signature by key %s does not hold: the image is not the one that was signed", strings.Join(bad, ", "))
	case len(signed) == 0:
		v.why = "it is not signed"
	default:
		var keys []string
		for _, s := range signed {
			keys = append(keys, Short(s.Key))
		}
		v.telling = 1
		v.why = fmt.Sprintf("it is signed by %s, and none of those keys is trusted here", strings.Join(keys, ", "))
	}
	return v
}

// Join is what holds of an image of which several copies with different signatures have been judged.
func (v Verdict) Join(o Verdict) Verdict {
	v.known = v.known || o.known
	v.signers = slices.Clone(v.signers)
	for _, k := range o.signers {
		if !slices.Contains(v.signers, k) {
			v.signers = append(v.signers, k)
		}
	}
	if o.telling >= v.telling {
		v.why, v.telling = o.why, o.telling
	}
	return v
}

// Allows says whether a function's code of a form may run: the keys that vouch for it (sorted; none if the image is known by its
// identity, or the form needs none), or why it may not.
func (v Verdict) Allows(form image.Form, function string) (signers [][]byte, why string) {
	if !Needed(form) || v.known {
		return nil, ""
	}
	for _, k := range v.signers {
		if no := k.allows(form, function); no != "" {
			why = no
			continue
		}
		signers = append(signers, slices.Clone(k.Public))
	}
	if len(signers) > 0 {
		slices.SortFunc(signers, bytes.Compare)
		return signers, ""
	}
	if why == "" {
		why = v.why
	}
	return nil, why
}

// Format writes a public key as people exchange it: 64 hex digits.
func Format(key ed25519.PublicKey) string { return hex.EncodeToString(key) }

// Short is the part of a public key that is shown where people look.
func Short(key ed25519.PublicKey) string { return hex.EncodeToString(key)[:min(12, 2*len(key))] }

// Parse reads what Format wrote.
func Parse(text string) (ed25519.PublicKey, error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("trust: %q is no public key: it has %d hex digits", text, 2*ed25519.PublicKeySize)
	}
	return b, nil
}
