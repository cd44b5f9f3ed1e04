package ca

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// Limits of files: what is larger is none of ours.
const (
	maxCertBytes = 64 << 10
	maxKeyBytes  = 16 << 10
	maxRootBytes = 1 << 20
	maxListBytes = 16 << 20
)

// Types of PEM blocks.
const (
	blockCert = "CERTIFICATE"
	blockKey  = "PRIVATE KEY"
	blockList = "X509 CRL"
)

// readFile reads a regular file of at most limit bytes. Of a private one no other user than the one
// that this process runs as may be able to read it: mode 0600 or less.
func readFile(path string, limit int64, private bool) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not block here
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("ca: %s is not a regular file", path)
	}
	if perm := info.Mode().Perm(); private && perm&0o177 != 0 {
		return nil, fmt.Errorf("ca: %s has mode %04o, so others could read or change it: chmod 600 %s", path, perm, path)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); private && (!ok || int(st.Uid) != os.Geteuid()) {
		return nil, fmt.Errorf("ca: %s does not belong to the user this runs as (uid %d): chown it", path, os.Geteuid())
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("ca: %s: %w", path, err)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("ca: %s has more than %d bytes", path, limit)
	}
	return b, nil
}

// blocks are the PEM blocks of one type in a text.
func blocks(text []byte, kind string) [][]byte {
	var out [][]byte
	for {
		var b *pem.Block
		if b, text = pem.Decode(text); b == nil {
			return out
		}
		if b.Type == kind {
			out = append(out, b.Bytes)
		}
	}
}

// readCerts reads a file of certificates; at least one.
func readCerts(path string, limit int64) ([]*x509.Certificate, error) {
	text, err := readFile(path, limit, false)
	if err != nil {
		return nil, err
	}
	return parseCerts(text, path)
}

func parseCerts(text []byte, path string) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for _, der := range blocks(text, blockCert) {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("ca: %s: %w", path, err)
		}
		certs = append(certs, c)
	}
	if len(certs) == 0 {
		return nil, fmt.Errorf("ca: %s holds no certificate in PEM", path)
	}
	return certs, nil
}

// ReadKey reads a private key in PEM (PKCS #8) from a file that no other user can read.
func ReadKey(path string) (crypto.Signer, error) { return readKey(path) }

// readKey reads a private key, which must be private.
func readKey(path string) (crypto.Signer, error) {
	text, err := readFile(path, maxKeyBytes, true)
	if err != nil {
		return nil, err
	}
	keys := blocks(text, blockKey)
	if len(keys) != 1 {
		return nil, fmt.Errorf("ca: %s holds %d private keys in PEM (PKCS #8), want one", path, len(keys))
	}
	key, err := x509.ParsePKCS8PrivateKey(keys[0])
	if err != nil {
		return nil, fmt.Errorf("ca: %s holds no private key that can be used", path) // without a word of its content
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("ca: %s: a key of type %T cannot sign", path, key)
	}
	return signer, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// WriteNew writes a file that must not be there yet.
func WriteNew(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%w: %s is there already: move it away first", ErrRequest, path)
	}
	if err != nil {
		return fmt.Errorf("ca: %w", err)
	}
	if err := finish(f, data); err != nil {
		os.Remove(path) // half a file would be in the way of the next attempt
		return err
	}
	return nil
}

// Replace writes a file in one step: a reader finds the old or the new content, whole.
func Replace(path string, data []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("ca: %w", err)
	}
	err = f.Chmod(mode)
	if werr := finish(f, data); err == nil {
		err = werr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("ca: %w", err)
	}
	return nil
}

// finish writes, makes durable and closes.
func finish(f *os.File, data []byte) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("ca: %w", err)
	}
	return nil
}
