package trust

import (
	"bytes"
	"crypto/ed25519"
	"strings"
	"testing"

	"github.com/wherry-fabric/wherry/inject/image"
)

// pair makes a key of a seed.
func pair(name string, of byte) (ed25519.PrivateKey, Key) {
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{of}, ed25519.SeedSize))
	return private, Key{Name: name, Public: private.Public().(ed25519.PublicKey)}
}

func build(t *testing.T, name string) *image.Image {
	t.Helper()
	img, err := image.Build(image.Manifest{Name: name, ABI: 1}, image.Entry{Form: image.LLVMBitcode, Triple: "x86_64-linux-gnu", Code: []byte{'B', 'C', 0xC0, 0xDE, 1, 0, 0, 0}})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func sign(t *testing.T, img *image.Image, keys ...ed25519.PrivateKey) *image.Image {
	t.Helper()
	for _, k := range keys {
		var err error
		if img, err = img.Sign(k); err != nil {
			t.Fatal(err)
		}
	}
	return img
}

// forged is img with what is no signature of key's.
func forged(t *testing.T, img *image.Image, key ed25519.PrivateKey) *image.Image {
	t.Helper()
	other := sign(t, build(t, "other"), key).Encode()
	file := img.Encode()
	// The section of signatures of one image behind the content of another: lengths differ by that section only.
	section := other[len(build(t, "other").Encode()):]
	file = append(file, section...)
	for i := range 8 {
		file[16+i] = byte(uint64(len(file)) >> (8 * i))
	}
	out, err := image.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestAllows: who vouches for what, and why not.
func TestAllows(t *testing.T) {
	annPrivate, ann := pair("ann", 1)
	bobPrivate, bob := pair("bob", 2)
	strangerPrivate, _ := pair("stranger", 3)
	elfOnly, chases, exact := ann, ann, ann
	elfOnly.Forms = []image.Form{image.ELF}
	chases.Names = []string{"chase*"}
	exact.Names = []string{"reach", "chase"}
	img := build(t, "chase")
	for name, c := range map[string]struct {
		keys  []Key
		known []image.ID
		img   *image.Image
		form  image.Form
		by    []string // names of signers
		why   string   // "": it may run
	}{
		"wasm needs nobody":    {nil, nil, img, image.Wasm, nil, ""},
		"nothing is trusted":   {nil, nil, img, image.LLVMBitcode, nil, "no key is trusted here"},
		"not signed":           {[]Key{ann}, nil, img, image.LLVMBitcode, nil, "it is not signed"},
		"signed":               {[]Key{ann}, nil, sign(t, img, annPrivate), image.LLVMBitcode, []string{"ann"}, ""},
		"by both":              {[]Key{bob, ann}, nil, sign(t, img, annPrivate, bobPrivate), image.ELF, []string{"ann", "bob"}, ""},
		"by a stranger":        {[]Key{ann}, nil, sign(t, img, strangerPrivate), image.ELF, nil, "none of those keys is trusted"},
		"by a stranger too":    {[]Key{ann}, nil, sign(t, img, strangerPrivate, annPrivate), image.ELF, []string{"ann"}, ""},
		"another's signature":  {[]Key{ann}, nil, forged(t, img, annPrivate), image.ELF, nil, "by key ann does not hold"},
		"for another form":     {[]Key{elfOnly}, nil, sign(t, img, annPrivate), image.LLVMBitcode, nil, "key ann, which signed it, is trusted for elf only"},
		"for this form":        {[]Key{elfOnly}, nil, sign(t, img, annPrivate), image.ELF, []string{"ann"}, ""},
		"for names like it":    {[]Key{chases}, nil, sign(t, build(t, "chase-fast"), annPrivate), image.ELF, []string{"ann"}, ""},
		"for its name":         {[]Key{exact}, nil, sign(t, img, annPrivate), image.ELF, []string{"ann"}, ""},
		"for other names":      {[]Key{exact}, nil, sign(t, build(t, "chaser"), annPrivate), image.ELF, nil, "trusted for functions named reach, chase only"},
		"the other key allows": {[]Key{elfOnly, bob}, nil, sign(t, img, annPrivate, bobPrivate), image.LLVMBitcode, []string{"bob"}, ""},
		"known by identity":    {nil, []image.ID{img.ID()}, img, image.ELF, nil, ""},
		"another identity":     {nil, []image.ID{img.ID()}, build(t, "chase2"), image.ELF, nil, "it is not signed"},
	} {
		p, err := New(c.keys, c.known...)
		if err != nil {
			t.Fatal(err)
		}
		signers, why := p.Judge(c.img).Allows(c.form, c.img.Name())
		if (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: %q, want %q", name, why, c.why)
		}
		var want [][]byte
		for _, k := range []Key{ann, bob} {
			for _, by := range c.by {
				if by == k.Name {
					want = append(want, k.Public)
				}
			}
		}
		if len(want) == 2 && bytes.Compare(want[0], want[1]) > 0 {
			want[0], want[1] = want[1], want[0]
		}
		if len(signers) != len(want) || len(want) > 0 && !bytes.Equal(bytes.Join(signers, nil), bytes.Join(want, nil)) {
			t.Errorf("%s: signers %x, want %x", name, signers, want)
		}
	}
}

// TestJoin: what one copy of an image lacks another has.
func TestJoin(t *testing.T) {
	annPrivate, ann := pair("ann", 1)
	p, err := New([]Key{ann})
	if err != nil {
		t.Fatal(err)
	}
	img := build(t, "f")
	plain, signed := p.Judge(img), p.Judge(sign(t, img, annPrivate))
	for _, v := range []Verdict{plain.Join(signed), signed.Join(plain), signed.Join(signed)} {
		if signers, why := v.Allows(image.ELF, "f"); why != "" || len(signers) != 1 {
			t.Errorf("%q, %d signers", why, len(signers))
		}
	}
	if _, why := plain.Allows(image.ELF, "f"); why == "" {
		t.Error("joining changed what was joined")
	}
	strangerPrivate, _ := pair("stranger", 3)
	strangers := p.Judge(sign(t, img, strangerPrivate))
	bad := p.Judge(forged(t, img, annPrivate))
	for _, v := range []Verdict{plain.Join(strangers), strangers.Join(plain)} {
		if _, why := v.Allows(image.ELF, "f"); !strings.Contains(why, "none of those keys") {
			t.Errorf("of two reasons %q is told", why)
		}
	}
	for _, v := range []Verdict{bad.Join(strangers), strangers.Join(bad)} {
		if _, why := v.Allows(image.ELF, "f"); !strings.Contains(why, "does not hold") {
			t.Errorf("of two reasons %q is told", why)
		}
	}
}

// TestNew: a policy that cannot be meant is refused.
func TestNew(t *testing.T) {
	_, ann := pair("ann", 1)
	_, bob := pair("bob", 2)
	twin := ann
	twin.Name = "twin"
	bobAsAnn := bob
	bobAsAnn.Name = "ann"
	with := func(change func(*Key)) Key {
		k := ann
		change(&k)
		return k
	}
	many := make([]Key, MaxKeys+1)
	for name, c := range map[string]struct {
		keys []Key
		says string
	}{
		"good":         {[]Key{ann, bob}, ""},
		"same key":     {[]Key{ann, twin}, "twice"},
		"same name":    {[]Key{ann, bobAsAnn}, "twice"},
		"no name":      {[]Key{with(func(k *Key) { k.Name = "" })}, "name"},
		"bad name":     {[]Key{with(func(k *Key) { k.Name = "a b" })}, "name"},
		"short":        {[]Key{with(func(k *Key) { k.Public = k.Public[:31] })}, "31 bytes"},
		"wasm":         {[]Key{with(func(k *Key) { k.Forms = []image.Form{image.Wasm} })}, "needs no signature"},
		"star inside":  {[]Key{with(func(k *Key) { k.Names = []string{"a*b"} })}, "*"},
		"never a name": {[]Key{with(func(k *Key) { k.Names = []string{"["} })}, "no function is called that"},
		"never a stem": {[]Key{with(func(k *Key) { k.Names = []string{"A*"} })}, "no function is called that"},
		"a stem":       {[]Key{with(func(k *Key) { k.Names = []string{"chase-*", "c*"} })}, ""},
		"empty name":   {[]Key{with(func(k *Key) { k.Names = []string{""} })}, "name"},
		"too many":     {many, "at most 64"},
		"star is fine": {[]Key{with(func(k *Key) { k.Names = []string{"*"} })}, ""},
	} {
		_, err := New(c.keys)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// TestParse: keys are read as they are written.
func TestParse(t *testing.T) {
	_, ann := pair("ann", 1)
	got, err := Parse(Format(ann.Public))
	if err != nil || !got.Equal(ann.Public) {
		t.Errorf("%x, %v", got, err)
	}
	for _, bad := range []string{"", "zz", Format(ann.Public)[2:], Format(ann.Public) + "00", strings.Repeat("g", 64)} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q was taken for a key", bad)
		}
	}
}
