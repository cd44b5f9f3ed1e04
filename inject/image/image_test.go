package image

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/wherry-fabric/wherry/inject/abi"
	"github.com/wherry-fabric/wherry/internal/golden"
	"github.com/wherry-fabric/wherry/schema"
)

// module makes a wasm module that imports the given host calls; its entry
// returns 0. extra goes into a custom section, to make it any length.
func module(extra string, imports ...string) []byte {
	section := func(id byte, body []byte) []byte {
		return append(append([]byte{id}, leb(len(body))...), body...)
	}
	name := func(s string) []byte { return append(leb(len(s)), s...) }
	types := append(leb(len(imports)+1), 0x60, 2, 0x7f, 0x7f, 1, 0x7f)
	list := leb(len(imports))
	for i, call := range imports {
		c, _ := abi.CallNamed(call, 1)
		params, results := c.Types()
		types = append(types, 0x60)
		for _, side := range []string{params, results} {
			types = append(types, byte(len(side)))
			for _, c := range side {
				types = append(types, map[rune]byte{'i': 0x7f, 'I': 0x7e}[c])
			}
		}
		list = append(list, name(abi.Module)...)
		list = append(append(list, name(call)...), 0, byte(i+1))
	}
	exports := append([]byte{2}, name("memory")...)
	exports = append(exports, 2, 0)
	exports = append(append(exports, name(abi.Entry)...), 0, byte(len(imports)))
	return slices.Concat([]byte("\x00asm\x01\x00\x00\x00"),
		section(1, types), section(2, list), section(3, []byte{1, 0}), section(5, []byte{1, 0, 1}),
		section(7, exports), section(10, []byte{1, 4, 0, 0x41, 0, 0x0b}), section(0, append(name("note"), extra...)))
}

func leb(n int) []byte {
	var b []byte
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// object makes the header and section table of a relocatable ELF64 object.
func object(machine uint16) []byte {
	b := make([]byte, elfHeaderBytes+elfSectionBytes)
	copy(b, "\x7fELF\x02\x01\x01")
	le := binary.LittleEndian
	le.PutUint16(b[16:], elfRelocatable)
	le.PutUint16(b[18:], machine)
	le.PutUint64(b[40:], elfHeaderBytes)
	le.PutUint16(b[58:], elfSectionBytes)
	le.PutUint16(b[60:], 1)
	return b
}

func text(s string) *string { return &s }

func fullManifest() Manifest {
	return Manifest{
		Name: "example", ABI: 1, Description: "Shows <every> field & more.", Start: StartOwner, OwnerParam: "row",
		Params: &schema.Schema{Fields: []schema.Field{
			{Name: "row", Type: schema.U64, Help: "where to begin"},
			{Name: "note", Type: schema.Str, Default: text("")},
		}},
		Result:     &schema.Schema{Fields: []schema.Field{{Name: "n", Type: schema.U64, Merge: schema.MergeSum}}},
		ResultForm: ResultRows,
		Windows:    []Window{{Name: "rows", Writable: true, Help: "u64"}, {Name: "text"}},
		Limits:     abi.Limits{HeapBytes: 1 << 20, ScratchBytes: 4096, RunTime: 1e9, Forks: 3},
		Imports:    []string{"fork", "reply", "window"},
		Source:     strings.Repeat("0f", 32),
	}
}

// TestWindowType: what a function says of its rows is read back as it was written.
func TestWindowType(t *testing.T) {
	m := fullManifest()
	m.Windows[0].Type = schema.BytesType(16)
	img, err := Build(m, fullEntries()[0])
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(img.Encode())
	if err != nil || !slices.Equal(again.Manifest().Windows, m.Windows) {
		t.Errorf("windows %v, want %v (%v)", again.Manifest().Windows, m.Windows, err)
	}
}

func fullEntries() []Entry {
	bitcode := append([]byte{'B', 'C', 0xC0, 0xDE}, make([]byte, 8)...)
	return []Entry{
		{Form: Wasm, Code: module("full", "fork", "reply", "window")},
		{Form: LLVMBitcode, Triple: "x86_64-linux-gnu", Code: bitcode},
		{Form: ELF, Triple: "aarch64-linux-gnu", Code: object(183)},
		{Form: ELF, Triple: "x86_64-linux-gnu", Code: object(62)},
		{Form: ELF, Triple: "x86_64-linux-gnu", Features: []string{"avx2", "bmi2"}, Code: append(object(62), "fast"...)},
	}
}

// TestOneOf: what a parameter is kept to comes back, and an image without it is as it was.
func TestOneOf(t *testing.T) {
	build := func(oneOf []string) *Image {
		m := fullManifest()
		m.Params.Fields[0].OneOf = oneOf
		img, err := Build(m, fullEntries()...)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(img.Encode())
		if err != nil {
			t.Fatal(err)
		}
		return again
	}
	first := fullManifest().Params.Fields[0]
	want := []string{string(first.Type)}
	if first.Type != schema.Column {
		want = []string{"1", "2"}
	}
	kept := build(want)
	if got := kept.Manifest().Params.Fields[0].OneOf; !slices.Equal(got, want) {
		t.Errorf("%q comes back as %q", want, got)
	}
	kept.Manifest().Params.Fields[0].OneOf[0] = "x"
	if got := kept.Manifest().Params.Fields[0].OneOf; !slices.Equal(got, want) {
		t.Error("who changes a manifest changes the image")
	}
	if plain, empty := build(nil), build([]string{}); plain.ID() != empty.ID() || plain.ID() != mustBuild(t).ID() || plain.ID() == kept.ID() {
		t.Errorf("identities: %v, empty %v, kept %v", plain.ID(), empty.ID(), kept.ID())
	}
	m := fullManifest()
	m.Params.Fields[0].OneOf = []string{"\xff"}
	if _, err := Build(m, fullEntries()...); !errors.Is(err, ErrManifest) {
		t.Errorf("text that is no UTF-8: %v", err)
	}
}

func mustBuild(t testing.TB) *Image {
	t.Helper()
	img, err := Build(fullManifest(), fullEntries()...)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func testKey(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func signedImage(t testing.TB) *Image {
	t.Helper()
	img := mustBuild(t)
	for _, k := range []byte{1, 2} {
		var err error
		if img, err = img.Sign(testKey(k)); err != nil {
			t.Fatal(err)
		}
	}
	return img
}

func TestRoundTrip(t *testing.T) {
	for name, img := range map[string]*Image{"plain": mustBuild(t), "signed": signedImage(t)} {
		again, err := Parse(img.Encode())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if again.ID() != img.ID() || again.Size() != len(img.Encode()) || !bytes.Equal(again.Encode(), img.Encode()) {
			t.Errorf("%s: not the same after a round trip", name)
		}
		if d := cmp.Diff(fullManifest(), again.Manifest()); d != "" {
			t.Errorf("%s: manifest (-built +parsed):\n%s", name, d)
		}
		if d := cmp.Diff(fullEntries(), again.Entries()); d != "" {
			t.Errorf("%s: entries (-built +parsed):\n%s", name, d)
		}
		if d := cmp.Diff(img.Signatures(), again.Signatures()); d != "" {
			t.Errorf("%s: signatures (-built +parsed):\n%s", name, d)
		}
	}
}

// The order of what Build is given does not matter, and it keeps nothing of it.
func TestBuildIsCanonical(t *testing.T) {
	want := mustBuild(t).ID()
	m, entries := fullManifest(), fullEntries()
	slices.Reverse(entries)
	m.Imports = nil
	img, err := Build(m, entries...)
	if err != nil {
		t.Fatal(err)
	}
	m.Windows[0].Name, m.Params.Fields[0].Name, *m.Params.Fields[1].Default = "other", "other", "other"
	for _, e := range entries {
		clear(e.Code)
	}
	again, err := Parse(img.Encode())
	if err != nil || again.ID() != want || img.ID() != want {
		t.Errorf("identity %s, then %v (%v), want %s", img.ID().Short(), again, err, want.Short())
	}
	got := img.Manifest()
	got.Windows[0].Name = "changed"
	if img.Manifest().Windows[0].Name != "rows" {
		t.Error("Manifest returns the image's own slices")
	}
}

func TestGolden(t *testing.T) {
	const path = "testdata/v1.wfn"
	img := signedImage(t)
	golden.Check(t, path, img.Encode())
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(want)
	if err != nil {
		t.Fatal(err)
	}
	const id = "9d555bc9e963c9842fb3e13d20c52a961b8e5d2b9e1b6a8c6841c519f8c1591d"
	if got.ID().String() != id {
		t.Errorf("identity of %s is %s, want %s", path, got.ID(), id)
	}
	if _, err := got.Verify([]ed25519.PublicKey{testKey(1).Public().(ed25519.PublicKey)}); err != nil {
		t.Error(err)
	}
}

// Every damaged byte and every cut is noticed.
// TestCopyID: copies with other signatures have other ids of their own, and one identity.
func TestCopyID(t *testing.T) {
	plain := mustBuild(t)
	one, err := plain.Sign(testKey(1))
	if err != nil {
		t.Fatal(err)
	}
	two, err := one.Sign(testKey(2))
	if err != nil {
		t.Fatal(err)
	}
	if plain.CopyID() != plain.ID() || one.Unsigned().CopyID() != plain.ID() {
		t.Error("a copy without signatures has an id besides its identity")
	}
	if one.ID() != plain.ID() || one.CopyID() == plain.CopyID() || one.CopyID() == two.CopyID() {
		t.Error("signing changed the identity, or did not change the copy's id")
	}
	for _, img := range []*Image{plain, one, two} {
		if again, err := Parse(img.Encode()); err != nil || again.CopyID() != img.CopyID() {
			t.Errorf("read again: %v, %v", again.CopyID(), err)
		}
	}
}

func TestDamage(t *testing.T) {
	whole := signedImage(t).Encode()
	for n := range whole {
		if _, err := Parse(whole[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes pass", n, len(whole))
		} else if n >= HeaderBytes && !errors.Is(err, ErrTruncated) {
			t.Fatalf("the first %d of %d bytes: %v, want ErrTruncated", n, len(whole), err)
		}
		damaged := bytes.Clone(whole)
		damaged[n] ^= 0x10
		if _, err := Parse(damaged); err == nil {
			t.Fatalf("byte %d can be changed", n)
		}
	}
	if _, err := Parse(append(bytes.Clone(whole), 0)); !errors.Is(err, ErrFormat) {
		t.Errorf("a byte too many: %v", err)
	}
}

func TestParseErrors(t *testing.T) {
	whole := mustBuild(t).Encode()
	le := binary.LittleEndian
	edit := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(whole)) }
	// reseal makes the identity right again after an edit of the content.
	reseal := func(f func(b []byte) []byte) []byte {
		b := f(bytes.Clone(whole))
		le.PutUint64(b[atTotal:], uint64(len(b)))
		le.PutUint64(b[atContent:], uint64(len(b)-HeaderBytes))
		id := identity(b)
		copy(b[atID:], id[:])
		return b
	}
	manifestBytes := int(le.Uint32(whole[HeaderBytes:]))
	entryAt := HeaderBytes + 8 + (manifestBytes+7)/8*8
	for name, tc := range map[string]struct {
		b    []byte
		want error
		says string
	}{
		"empty":            {nil, ErrTruncated, "0 bytes"},
		"half a magic":     {[]byte("WHER"), ErrTruncated, "4 bytes"},
		"another file":     {[]byte("\x7fELF............"), ErrMagic, `"\x7fELF....`},
		"version 2":        {edit(func(b []byte) []byte { b[atVersion] = 2; return b }), ErrVersion, "reads version 1"},
		"flags":            {edit(func(b []byte) []byte { b[atFlags] = 1; return b }), ErrFormat, "flags"},
		"announced large":  {edit(func(b []byte) []byte { le.PutUint64(b[atTotal:], MaxBytes+1); return b }), ErrTooLarge, "16777217"},
		"large":            {append(bytes.Clone(whole), make([]byte, MaxBytes)...), ErrTooLarge, "at most 16777216"},
		"content past end": {edit(func(b []byte) []byte { le.PutUint64(b[atContent:], 1<<63); return b }), ErrFormat, "content"},
		"checksum":         {edit(func(b []byte) []byte { b[len(b)-1] ^= 1; return b }), ErrChecksum, "SHA-256"},
		"identity":         {edit(func(b []byte) []byte { b[HeaderBytes-1] ^= 1; return b }), ErrChecksum, hex.EncodeToString(whole[atID:HeaderBytes])},
		"no content":       {reseal(func(b []byte) []byte { return b[:HeaderBytes] }), ErrFormat, "content head"},
		"manifest past end": {reseal(func(b []byte) []byte {
			le.PutUint32(b[HeaderBytes:], MaxManifestBytes)
			return b
		}), ErrFormat, "manifest at byte 72"},
		"manifest too large":   {reseal(func(b []byte) []byte { le.PutUint32(b[HeaderBytes:], 1<<31); return b }), ErrManifest, "at most 65536"},
		"too many entries":     {reseal(func(b []byte) []byte { le.PutUint32(b[HeaderBytes+4:], 17); return b }), ErrEntry, "at most 16"},
		"no entries":           {reseal(func(b []byte) []byte { le.PutUint32(b[HeaderBytes+4:], 0); return b[:entryAt] }), ErrEntry, "at least one"},
		"more than entries":    {reseal(func(b []byte) []byte { return append(b, make([]byte, 8)...) }), ErrFormat, "follow the last entry"},
		"code past end":        {reseal(func(b []byte) []byte { le.PutUint64(b[entryAt+8:], 1<<40); return b }), ErrFormat, "code at byte"},
		"unknown form":         {reseal(func(b []byte) []byte { le.PutUint32(b[entryAt:], 9); return b }), ErrEntry, "form 9"},
		"padding":              {reseal(func(b []byte) []byte { b[len(b)-1] = 1; return b }), ErrFormat, "padding"},
		"manifest not JSON":    {reseal(func(b []byte) []byte { b[HeaderBytes+8] = '['; return b }), ErrManifest, ""},
		"manifest with spaces": {reseal(func(b []byte) []byte { b[HeaderBytes+8+1] = ' '; b[HeaderBytes+8] = '{'; return b }), ErrManifest, ""},
	} {
		_, err := Parse(tc.b)
		if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %v with %q", name, err, tc.want, tc.says)
		}
	}
}

// Only the canonical manifest is accepted: the same fields written otherwise
// would be the same function with another identity.
func TestManifestRanges(t *testing.T) {
	m, err := ParseManifest([]byte(`{"abi": 1, "ranges": true, "name": "x"}`))
	if err != nil || !m.Ranges {
		t.Fatal(m, err)
	}
	img, err := Build(m, Entry{Form: Wasm, Code: module("x", "row", "shard_rows")})
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(img.Encode())
	if err != nil || !again.Manifest().Ranges || fmt.Sprint(again.Manifest().Imports) != "[row shard_rows]" {
		t.Errorf("%+v, %v", again, err)
	}
	m.Ranges = false
	if other, err := Build(m, Entry{Form: Wasm, Code: module("x", "row", "shard_rows")}); err != nil || other.ID() == img.ID() {
		t.Errorf("without ranges it is the same function: %v", err)
	}
}

func TestManifestRows(t *testing.T) {
	m, err := ParseManifest([]byte(`{"abi": 1, "name": "x", "rows": {"fields": [{"name": "at", "type": "i64"}, {"name": "level", "type": "str"}]}}`))
	if err != nil || m.Rows.String() != "at:i64,level:str" {
		t.Fatal(m, err)
	}
	build := func(m Manifest) (*Image, error) { return Build(m, Entry{Form: Wasm, Code: module("x", "row")}) }
	img, err := build(m)
	if err != nil {
		t.Fatal(err)
	}
	m.Rows.Fields[0].Name = "when"
	again, err := Parse(img.Encode())
	if err != nil || again.Manifest().Rows.String() != "at:i64,level:str" {
		t.Errorf("%+v, %v", again, err)
	}
	for _, rows := range []*schema.Schema{{}, {Fields: []schema.Field{{Name: "c", Type: schema.Column}}}, {Fields: []schema.Field{{Name: "c", Type: schema.U8, Merge: schema.MergeSum}}}} {
		m.Rows = rows
		if _, err := build(m); !errors.Is(err, ErrManifest) || !strings.Contains(err.Error(), "rows: ") {
			t.Errorf("rows of %q: %v", rows, err)
		}
	}
}

func TestManifestMustBeCanonical(t *testing.T) {
	img := mustBuild(t)
	canonical, err := img.manifest.canonical()
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []struct{ from, to string }{
		{`{"name"`, `{ "name"`},
		{`"abi":1`, `"abi":1.0`},
		{`<every>`, `\u003cevery\u003e`},
		{`"name":"example","abi":1`, `"abi":1,"name":"example"`},
		{`"name":"example"`, `"name":"other","name":"example"`},
		{`}]}`, `}]} `},
		{`"start":`, `"Start":`},
		{`"note","type":"str"`, `"note","type":"str","merge":""`},
		{`"windows":`, `"ranges":false,"windows":`},
		{`"start":`, `"ranges":true,"start":`},
	} {
		b := strings.Replace(string(canonical), change.from, change.to, 1)
		if b == string(canonical) {
			t.Fatalf("%q is not in the manifest", change.from)
		}
		var again Image
		if err := again.parseManifest([]byte(b)); !errors.Is(err, ErrManifest) {
			t.Errorf("%q for %q: %v, want ErrManifest", change.to, change.from, err)
		}
	}
	var again Image
	if err := again.parseManifest(canonical); err != nil {
		t.Error(err)
	}
}

func TestManifestErrors(t *testing.T) {
	wasm := Entry{Form: Wasm, Code: module("", "fork", "reply", "window")}
	for name, tc := range map[string]struct {
		change func(*Manifest)
		says   string
	}{
		"no name":         {func(m *Manifest) { m.Name = "" }, "name: is empty"},
		"capital":         {func(m *Manifest) { m.Name = "Chase" }, "only a-z"},
		"hidden":          {func(m *Manifest) { m.Name = ".chase" }, "starts with"},
		"long name":       {func(m *Manifest) { m.Name = strings.Repeat("x", 65) }, "at most 64"},
		"abi":             {func(m *Manifest) { m.ABI = abi.Version + 1 }, "abi 3 is not known"},
		"description":     {func(m *Manifest) { m.Description = strings.Repeat("x", MaxDescriptionBytes+1) }, "description has"},
		"not UTF-8":       {func(m *Manifest) { m.Description = "\xff" }, "not UTF-8"},
		"start":           {func(m *Manifest) { m.Start = "last"; m.OwnerParam = "" }, "none of every, chunk, first, owner"},
		"owner missing":   {func(m *Manifest) { m.OwnerParam = "" }, "is no parameter"},
		"owner unknown":   {func(m *Manifest) { m.OwnerParam = "line" }, `"line" is no parameter`},
		"owner is text":   {func(m *Manifest) { m.OwnerParam = "note" }, "a row is an integer"},
		"owner unused":    {func(m *Manifest) { m.Start = StartEvery }, "start is \"every\""},
		"params empty":    {func(m *Manifest) { m.Params = &schema.Schema{} }, "without fields"},
		"param type":      {func(m *Manifest) { m.Params.Fields[0].Type = "u65" }, "u65"},
		"param merged":    {func(m *Manifest) { m.Params.Fields[0].Merge = "sum" }, "not merged"},
		"help":            {func(m *Manifest) { m.Params.Fields[0].Help = "\xff" }, "not UTF-8"},
		"result default":  {func(m *Manifest) { m.Result.Fields[0].Default = text("1") }, "no default"},
		"raw with schema": {func(m *Manifest) { m.ResultForm = ResultRaw }, "yet there is a result schema"},
		"rows without":    {func(m *Manifest) { m.Result = nil }, "yet there is no result schema"},
		"form":            {func(m *Manifest) { m.ResultForm = "csv" }, "none of raw"},
		"list of str": {func(m *Manifest) {
			m.ResultForm = ResultList
			m.Result.Fields[0] = schema.Field{Name: "s", Type: schema.Str}
		}, "str field"},
		"windows":        {func(m *Manifest) { m.Windows = make([]Window, 65) }, "65 windows"},
		"window type":    {func(m *Manifest) { m.Windows[0].Type = "u65" }, "window 0: type"},
		"column rows":    {func(m *Manifest) { m.Windows[0].Type = schema.Column }, "window 0: type"},
		"typed text":     {func(m *Manifest) { m.Windows[1].Type = schema.U64 }, "only window 0 holds rows"},
		"window name":    {func(m *Manifest) { m.Windows[1].Name = "a b" }, "window 1"},
		"import":         {func(m *Manifest) { m.Imports = []string{"system"} }, `there is no host call "system"`},
		"a later import": {func(m *Manifest) { m.Imports = []string{"random"} }, `"random" came with ABI version 2, and the manifest says "abi": 1`},
		"imports differ": {func(m *Manifest) { m.Imports = []string{"reply"} }, "the wasm module imports [fork reply window]"},
		"run time":       {func(m *Manifest) { m.Limits.RunTime = -1 }, "negative"},
		"source":         {func(m *Manifest) { m.Source = "0F" }, "64 lower-case"},
	} {
		m := fullManifest()
		tc.change(&m)
		_, err := Build(m, wasm)
		if !errors.Is(err, ErrManifest) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want ErrManifest with %q", name, err, tc.says)
		}
	}
	if _, err := Build(fullManifest()); !errors.Is(err, ErrEntry) {
		t.Errorf("no entries: %v", err)
	}
}

func TestParseManifest(t *testing.T) {
	m, err := ParseManifest([]byte("{\n \"owner_param\": \"x\", \"name\": \"f\" }\n"))
	if err != nil || m.Start != StartOwner || m.ABI != abi.Version || m.ResultForm != ResultRaw {
		t.Errorf("%+v, %v", m, err)
	}
	m, err = ParseManifest([]byte(`{"name":"f","result":{"fields":[{"name":"n","type":"u64"}]}}`))
	if err != nil || m.Start != StartFirst || m.ResultForm != ResultRows {
		t.Errorf("%+v, %v", m, err)
	}
	for _, bad := range []string{"", "{", "[]", `{"nmae":"f"}`, `{"name":"f"} x`, `{"name":1}`, strings.Repeat(" ", MaxManifestBytes+1)} {
		if _, err := ParseManifest([]byte(bad)); !errors.Is(err, ErrManifest) {
			t.Errorf("%.20q: %v, want ErrManifest", bad, err)
		}
	}
}

func TestTooLarge(t *testing.T) {
	code := append(object(62), make([]byte, MaxBytes)...)
	if _, err := Build(fullManifest(), Entry{Form: ELF, Triple: "x86_64-linux-gnu", Code: code}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an entry above the limit: %v", err)
	}
}

func TestID(t *testing.T) {
	id := mustBuild(t).ID()
	again, err := ParseID(id.String())
	if err != nil || again != id || id.Short() != id.String()[:12] || id.IsZero() || !(ID{}).IsZero() {
		t.Errorf("%v, %v", again, err)
	}
	var fromText ID
	if b, _ := id.MarshalText(); fromText.UnmarshalText(b) != nil || fromText != id {
		t.Errorf("text form %s", b)
	}
	for _, bad := range []string{"", id.Short(), strings.ToUpper(hex.EncodeToString(bytes.Repeat([]byte{0xab}, 32))), strings.Repeat("g", 64), id.String() + "0"} {
		if _, err := ParseID(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestRoundTripRapid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		label := rapid.StringMatching(`[a-z0-9_][a-z0-9._-]{0,20}`)
		calls := rapid.SliceOfDistinct(rapid.SampledFrom([]string{"self", "reply", "fork", "get", "atomic", "log", "now", "scratch"}), rapid.ID).Draw(t, "imports")
		m := Manifest{
			Name:        label.Draw(t, "name"),
			ABI:         1, // as module has its imports
			Description: rapid.String().Draw(t, "description"),
			Start:       rapid.SampledFrom([]Start{"", StartEvery, StartChunk, StartFirst}).Draw(t, "start"),
			Limits:      abi.Limits{HeapBytes: rapid.Uint64().Draw(t, "heap"), LogBytes: rapid.Uint32().Draw(t, "log")},
		}
		entries := []Entry{{Form: Wasm, Code: module(rapid.String().Draw(t, "extra"), calls...)}}
		for _, f := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"", "avx2", "bmi2,sse4.2"}), rapid.ID).Draw(t, "features") {
			e := Entry{Form: ELF, Triple: "x86_64-linux-gnu", Code: append(object(62), rapid.SliceOf(rapid.Byte()).Draw(t, "code")...)}
			if f != "" {
				e.Features = strings.Split(f, ",")
			}
			entries = append(entries, e)
		}
		img, err := Build(m, entries...)
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(0, 3).Draw(t, "signatures") {
			if img, err = img.Sign(testKey(rapid.Byte().Draw(t, "key"))); err != nil {
				t.Fatal(err)
			}
		}
		again, err := Parse(img.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(img.Manifest(), again.Manifest()); d != "" || again.ID() != img.ID() || !bytes.Equal(again.Encode(), img.Encode()) {
			t.Fatalf("not the same after a round trip: %s", d)
		}
	})
}
