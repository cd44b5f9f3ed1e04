package cluster

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strings"
	"syscall"
)

// ErrToken says that a token or a token file is not valid; the message says why.
var ErrToken = errors.New("cluster: bad token")

const (
	// TokenSecretBytes is the length of a generated secret.
	TokenSecretBytes = 32
	// MinSecretBytes and MaxSecretBytes bound a secret in a file: 128 bits
	// cannot be guessed, and more than 512 add nothing.
	MinSecretBytes = 16
	MaxSecretBytes = 64
	// MaxTokens bounds a token file.
	MaxTokens = 4096
)

// Token proves who a principal is: whoever knows Secret is Name.
type Token struct {
	Name   string
	Caps   Caps
	Secret []byte `json:"-"`
}

// NewToken makes a token with a random secret.
func NewToken(name string, caps Caps) (Token, error) {
	t := Token{Name: name, Caps: caps, Secret: make([]byte, TokenSecretBytes)}
	rand.Read(t.Secret) // never fails: crypto/rand ends the program instead
	return t, t.validate()
}

func (t *Token) validate() error {
	if err := ValidateName(t.Name); err != nil {
		return fmt.Errorf("%w: %w", ErrToken, err)
	}
	if t.Caps&^CapsAll != 0 {
		return fmt.Errorf("%w: %s: unknown capabilities %#x", ErrToken, t.Name, uint8(t.Caps))
	}
	if n := len(t.Secret); n < MinSecretBytes || n > MaxSecretBytes {
		return fmt.Errorf("%w: %s: a secret of %d bytes, want %d to %d (twice as many hex digits)", ErrToken, t.Name, n, MinSecretBytes, MaxSecretBytes)
	}
	return nil
}

// Line is the token as it stands in a token file: name:caps:hexsecret.
func (t Token) Line() string {
	return t.Name + ":" + t.Caps.String() + ":" + hex.EncodeToString(t.Secret)
}

// String names the token without its secret.
func (t Token) String() string { return t.Name + ":" + t.Caps.String() + ":(secret)" }

// GoString keeps the secret out of %#v too.
func (t Token) GoString() string { return t.String() }

// Principal is who a bearer of the token is.
func (t Token) Principal() Principal { return Principal{Name: t.Name, Caps: t.Caps} }

// ParseToken reads one line of a token file.
func ParseToken(line string) (Token, error) {
	parts := strings.Split(line, ":")
	if len(parts) != 3 {
		return Token{}, fmt.Errorf("%w: a line with %d parts, want name:caps:hexsecret", ErrToken, len(parts))
	}
	t := Token{Name: strings.TrimSpace(parts[0])}
	if err := ValidateName(t.Name); err != nil {
		return Token{}, fmt.Errorf("%w: %w", ErrToken, err)
	}
	var err error
	if t.Caps, err = ParseCaps(strings.ReplaceAll(parts[1], " ", "")); err != nil {
		return Token{}, fmt.Errorf("%w: %s: %w", ErrToken, t.Name, err)
	}
	if t.Secret, err = hex.DecodeString(strings.TrimSpace(parts[2])); err != nil {
		return Token{}, fmt.Errorf("%w: %s: its secret is not hex digits", ErrToken, t.Name) // without the secret
	}
	return t, t.validate()
}

// Tokens is a set of tokens, one per name.
type Tokens struct {
	list   []Token // sorted by name
	hashes [][sha256.Size]byte
}

// NewTokens makes a set. Names and secrets must differ.
func NewTokens(list []Token) (*Tokens, error) {
	if len(list) > MaxTokens {
		return nil, fmt.Errorf("%w: %d tokens, at most %d are allowed", ErrToken, len(list), MaxTokens)
	}
	ts := &Tokens{list: slices.Clone(list)}
	slices.SortStableFunc(ts.list, func(a, b Token) int { return cmp.Compare(a.Name, b.Name) })
	seen := map[[sha256.Size]byte]string{}
	for i := range ts.list {
		t := &ts.list[i]
		if err := t.validate(); err != nil {
			return nil, err
		}
		if i > 0 && ts.list[i-1].Name == t.Name {
			return nil, fmt.Errorf("%w: %s stands twice", ErrToken, t.Name)
		}
		t.Secret = slices.Clone(t.Secret)
		h := sha256.Sum256(t.Secret)
		if other, ok := seen[h]; ok {
			return nil, fmt.Errorf("%w: %s and %s have the same secret", ErrToken, other, t.Name)
		}
		seen[h] = t.Name
		ts.hashes = append(ts.hashes, h)
	}
	return ts, nil
}

// Len is the number of tokens.
func (ts *Tokens) Len() int { return len(ts.list) }

// Names are the tokens' names, sorted.
func (ts *Tokens) Names() []string {
	names := make([]string, len(ts.list))
	for i := range ts.list {
		names[i] = ts.list[i].Name
	}
	return names
}

// Lookup finds a token by its name, which is no secret.
func (ts *Tokens) Lookup(name string) (Token, bool) {
	i, ok := slices.BinarySearchFunc(ts.list, name, func(t Token, name string) int { return cmp.Compare(t.Name, name) })
	if !ok {
		return Token{}, false
	}
	t := ts.list[i]
	t.Secret = slices.Clone(t.Secret)
	return t, true
}

// Authenticate finds whose secret this is. How long it takes tells nothing
// about the secrets: hashes are compared, all of them, in constant time.
func (ts *Tokens) Authenticate(secret []byte) (Principal, bool) {
	h := sha256.Sum256(secret)
	found := -1
	for i := range ts.hashes {
		equal := subtle.ConstantTimeCompare(h[:], ts.hashes[i][:])
		found = subtle.ConstantTimeSelect(equal, i, found)
	}
	if found < 0 {
		return Principal{}, false
	}
	return ts.list[found].Principal(), true
}

// ReadTokens reads a token file's text: a token per line, "#" starts a comment.
func ReadTokens(r io.Reader) (*Tokens, error) {
	var list []Token
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLineBytes)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		t, err := ParseToken(text)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if list = append(list, t); len(list) > MaxTokens {
			return nil, fmt.Errorf("line %d: %w: more than %d tokens", n, ErrToken, MaxTokens)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrToken, err)
	}
	return NewTokens(list)
}

// LoadTokens reads a token file. No other user than the one this process runs as may
// be able to read it: it must be that user's regular file, with mode 0600 or less.
func LoadTokens(path string) (*Tokens, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not block here
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w: make a token with 'wherry token new NAME --file %s' (for a node with --node), or name your token file with --token-file", ErrToken, err, path)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrToken, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrToken, err)
	}
	if err := private(path, info); err != nil {
		return nil, err
	}
	ts, err := ReadTokens(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return ts, nil
}

// private checks which users can read a token file.
func private(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is not a regular file", ErrToken, path)
	}
	if perm := info.Mode().Perm(); perm&0o177 != 0 {
		return fmt.Errorf("%w: %s has mode %04o, so others could read or change it: chmod 600 %s", ErrToken, path, perm, path)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: %s does not belong to the user this runs as (uid %d): chown it", ErrToken, path, os.Geteuid())
	}
	return nil
}

// splitWords splits at commas and drops spaces around words.
func splitWords(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for word := range strings.SplitSeq(text, ",") {
			if !yield(strings.TrimSpace(word)) {
				return
			}
		}
	}
}
