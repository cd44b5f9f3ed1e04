package etcd

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// revokedTime is how often the list of revoked certificates is looked at.
const revokedTime = 5 * time.Second

// revoked keeps a copy of a list of revoked certificates as etcd reads it: DER, where the authority writes PEM. etcd reads it at each connection.
type revoked struct {
	from, to string
	text     []byte // of from, as it was copied last
	log      *slog.Logger
}

func newRevoked(from, dir string, log *slog.Logger) (*revoked, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &revoked{from: from, to: filepath.Join(dir, "revoked.crl"), log: log}
	return r, r.copy()
}

// copy writes the copy anew if the list has changed.
func (r *revoked) copy() error {
	text, err := os.ReadFile(r.from)
	if err != nil || bytes.Equal(text, r.text) {
		return err
	}
	der := text
	if block, rest := pem.Decode(text); block != nil {
		der = block.Bytes
		if more, _ := pem.Decode(rest); more != nil {
			return fmt.Errorf("%s: it has several lists, and etcd's members judge each other by one: give the list of the authority that issued the managers' certificates", r.from)
		}
	}
	if err := os.WriteFile(r.to+".new", der, 0o600); err != nil {
		return err
	}
	r.text = text
	return os.Rename(r.to+".new", r.to)
}

// follow copies the list whenever it changes, until the context ends. A list that cannot be read leaves the copy as it was, and is logged once.
func (r *revoked) follow(ctx context.Context) {
	var said error
	for {
		select {
		case <-time.After(revokedTime):
		case <-ctx.Done():
			return
		}
		err := r.copy()
		if err != nil && said == nil {
			r.log.Error("etcd: the list of revoked certificates cannot be read: the one before counts on", "err", err)
		}
		said = err
	}
}
