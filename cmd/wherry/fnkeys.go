package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/cluster/ca"
	"github.com/wherry-fabric/wherry/inject/trust"
	"github.com/wherry-fabric/wherry/node"
)

var errNoKey = errors.New("no such key")

func (a *app) fnKeysCommand() *cobra.Command {
	parent := noun(&cobra.Command{
		Use:   "keys",
		Short: "Make keys that sign functions, and say which are trusted",
		Long: `Native code (bitcode, ELF) runs at a node only if a key that the node trusts has
signed it. wherry fn keys new makes a key; whoever has its file can sign. The
others edit a trust file, which nodes read when they start and at SIGHUP
(trust_file).`,
		Example: "  wherry fn keys new release\n  wherry fn keys add release release.key --file trust.yaml\n  wherry fn keys ls --file trust.yaml",
	})
	parent.AddCommand(a.keysNewCommand(), a.keysListCommand(), a.keysAddCommand(), a.keysRemoveCommand())
	return parent
}

// standardTrustFile is where a trust file is if no other is named; "" if there is no home.
func standardTrustFile() string {
	if token := standardTokenFile(); token != "" {
		return filepath.Join(filepath.Dir(token), "trust.yaml")
	}
	return ""
}

func trustFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "file", standardTrustFile(), "the trust file")
}

func (a *app) keysNewCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:     "new NAME",
		Short:   "Make a key that signs functions",
		Long:    "Make an ed25519 key and write it to NAME.key, mode 0600: keep it where only those who may sign can read it. Its public half is shown, and goes into trust files.",
		Example: "  wherry fn keys new release\n  wherry fn keys new release -o /secure/release.key",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if out == "" {
				out = args[0] + ".key"
			}
			public, private, err := ed25519.GenerateKey(rand.Reader)
			if err != nil {
				return err
			}
			if err := (&trust.Key{Name: args[0], Public: public}).Validate(); err != nil {
				return usageError{err}
			}
			der, err := x509.MarshalPKCS8PrivateKey(private)
			if err != nil {
				return err
			}
			if err := ca.WriteNew(out, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); errors.Is(err, ca.ErrRequest) {
				return usagef("%s is there already: move it away first, or name another file with -o", out)
			} else if err != nil {
				return ofKeys(err)
			}
			v := map[string]any{"name": args[0], "key": trust.Format(public), "file": out}
			return a.print(v, func(w io.Writer) {
				fmt.Fprintf(w, "%s is in %s; its public half is %s\n", args[0], out, trust.Format(public))
			})
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "file for the key, which must not be there yet (NAME.key)")
	return cmd
}

// keyError is an error of package ca, whose files are like those of functions' keys.
type keyError struct{ error }

// ofKeys words an error for keys, which are no certificates.
func ofKeys(err error) error { return &keyError{err} }

func (e *keyError) Error() string { return strings.TrimPrefix(e.error.Error(), "ca: ") }
func (e *keyError) Unwrap() error { return e.error }

// readSigningKey reads what keys new wrote.
func readSigningKey(file string) (ed25519.PrivateKey, error) {
	signer, err := ca.ReadKey(file)
	if err != nil {
		return nil, usageError{ofKeys(err)}
	}
	key, ok := signer.(ed25519.PrivateKey)
	if !ok {
		return nil, usagef("%s: functions are signed with ed25519 keys, and this is another kind: make one with wherry fn keys new", file)
	}
	return key, nil
}

// publicKey is a key's public half: its digits, or that of a key in a file.
func publicKey(text string) (ed25519.PublicKey, error) {
	key, err := trust.Parse(text)
	if err == nil {
		return key, nil
	}
	if _, serr := os.Stat(text); serr != nil {
		return nil, usagef("%w, and there is no file of that name", err)
	}
	private, err := readSigningKey(text)
	if err != nil {
		return nil, err
	}
	return private.Public().(ed25519.PublicKey), nil
}

// readTrustFile reads a trust file as a node of its owner does; one that is not there yet is empty, if that is allowed.
func readTrustFile(file string, mayLack bool) ([]node.TrustedKey, error) {
	if file == "" {
		return nil, usagef("no trust file: give --file")
	}
	keys, err := node.ReadTrustFile(file, node.FileOwner)
	switch {
	case errors.Is(err, fs.ErrNotExist) && mayLack:
		return nil, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: wherry fn keys add makes one, and --file names another", err)
	case err != nil:
		return nil, usageError{err}
	}
	return keys, nil
}

func (a *app) writeTrustFile(file string, keys []node.TrustedKey) error {
	if _, err := node.TrustPolicy(keys); err != nil {
		return usagef("%s: %w", file, err)
	}
	if err := a.tokenFolder(filepath.Dir(file)); err != nil {
		return err
	}
	var text bytes.Buffer
	if err := node.WriteTrust(&text, keys); err != nil {
		return err
	}
	if err := ca.Replace(file, text.Bytes(), 0o644); err != nil {
		return ofKeys(err)
	}
	return nil
}

func (a *app) keysListCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "ls", Short: "List a trust file's keys", Example: "  wherry fn keys ls --file /etc/wherry/trust.yaml --json", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			keys, err := readTrustFile(file, false)
			if err != nil {
				return err
			}
			if keys == nil {
				keys = []node.TrustedKey{}
			}
			return a.print(keys, func(w io.Writer) {
				for _, k := range keys {
					fmt.Fprintf(w, "%-16s %s  %s of functions named %s\n", k.Name, k.Key, orAll(k.Forms, "bitcode and elf"), orAll(k.Names, "anything"))
				}
			})
		},
	}
	trustFlag(cmd, &file)
	return cmd
}

func orAll(list []string, all string) string {
	if len(list) == 0 {
		return all
	}
	return strings.Join(list, ", ")
}

func (a *app) keysAddCommand() *cobra.Command {
	var file string
	var k node.TrustedKey
	cmd := &cobra.Command{
		Use:   "add NAME KEY",
		Short: "Have a trust file trust a key",
		Long: `Add a key to a trust file, which is made if it is not there. KEY is a public key,
64 hex digits, or the file of a key that wherry fn keys new made. Nodes read their
trust file when they start and at SIGHUP.`,
		Example: "  wherry fn keys add release release.key --file trust.yaml\n  wherry fn keys add ann 3b6a27bc…f2b6 --form bitcode --function 'chase*' --file trust.yaml",
		Args:    cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			public, err := publicKey(args[1])
			if err != nil {
				return err
			}
			k.Name, k.Key = args[0], trust.Format(public)
			keys, err := readTrustFile(file, true)
			if err == nil {
				err = a.writeTrustFile(file, append(keys, k))
			}
			if err != nil {
				return err
			}
			return a.print(k, func(w io.Writer) { fmt.Fprintf(w, "%s trusts %s (%s)\n", file, k.Name, k.Key) })
		},
	}
	trustFlag(cmd, &file)
	cmd.Flags().StringArrayVar(&k.Forms, "form", nil, "form of code that the key can vouch for: bitcode or elf; may be repeated (both)")
	cmd.Flags().StringArrayVar(&k.Names, "function", nil, "function that it can vouch for; a * at the end stands for anything; may be repeated (all)")
	return cmd
}

func (a *app) keysRemoveCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "rm NAME", Short: "Have a trust file trust a key no more", Example: "  wherry fn keys rm release --file trust.yaml", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			keys, err := readTrustFile(file, false)
			if err != nil {
				return err
			}
			i := slices.IndexFunc(keys, func(k node.TrustedKey) bool { return k.Name == args[0] })
			if i < 0 {
				return fmt.Errorf("%w: %s has none called %q; wherry fn keys ls lists them", errNoKey, file, args[0])
			}
			if err := a.writeTrustFile(file, slices.Delete(keys, i, i+1)); err != nil {
				return err
			}
			return a.print(map[string]any{"name": args[0], "file": file}, func(w io.Writer) {
				fmt.Fprintf(w, "%s trusts %s no more; nodes that run do until they read it again (SIGHUP)\n", file, args[0])
			})
		},
	}
	trustFlag(cmd, &file)
	return cmd
}
