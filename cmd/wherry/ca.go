package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/cluster"
	"github.com/wherry-fabric/wherry/cluster/ca"
)

const day = 24 * time.Hour

// soon is how long before its end a certificate is marked in the list.
const soon = ca.RenewTime

// caFlags are the settings of the ca commands.
type caFlags struct {
	dir   string
	out   string
	caps  string
	name  string
	node  bool
	hosts []string
	days  int
}

func (a *app) caCommand() *cobra.Command {
	var f caFlags
	parent := noun(&cobra.Command{
		Use:   "ca",
		Short: "Make the certificates that identify nodes and users",
		Long: `An authority is a folder with a key; whoever has the key can make certificates
for the cluster, so keep it on one machine, away from the nodes. A certificate
says who somebody is and what they may do, as a token does, and TLS needs one on
both ends. Nodes get their own certificate and key, the authority's certificate
(ca.crt) and what it revoked (ca.crl); people get theirs and ca.crt.`,
		Example: `  wherry ca init
  wherry ca issue n1 --node --host 10.0.0.5 --host n1.example --out /tmp/n1
  wherry ca issue ann --caps inject,read
  wherry ca ls`,
	})
	parent.PersistentFlags().StringVar(&f.dir, "dir", defaultAuthority(), "the authority's folder ($WHERRY_CA)")
	parent.AddCommand(a.caInit(&f), a.caIssue(&f), a.caRenew(&f), a.caRevoke(&f), a.caList(&f))
	return parent
}

// defaultAuthority is $WHERRY_CA, or the user's own.
func defaultAuthority() string {
	if d := os.Getenv("WHERRY_CA"); d != "" {
		return d
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "ca"
	}
	return filepath.Join(dir, "wherry", "ca")
}

// maxDays is ca.MaxLife.
const maxDays = int(ca.MaxLife / day)

func dayRange() string { return fmt.Sprintf("1 to %d", maxDays) }

func checkDays(days int) error {
	if days < 1 || days > maxDays {
		return usagef("--days %d: %s are possible", days, dayRange())
	}
	return nil
}

func (f *caFlags) outDir(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.out, "out", ".", "folder to write NAME.crt and NAME.key into")
}

func (a *app) caInit(f *caFlags) *cobra.Command {
	days := int(ca.DefaultLife / day)
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make an authority",
		Example: `  wherry ca init
  wherry ca init --dir /secure/wherry-ca --name lab --days 1825`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&f.name, "name", "wherry", "what the authority is called")
	cmd.Flags().IntVar(&days, "days", days, "how long it lives, in days, "+dayRange()+"; no certificate of it is good for longer")
	cmd.RunE = func(*cobra.Command, []string) error {
		if err := checkDays(days); err != nil {
			return err
		}
		made, err := ca.Init(f.dir, f.name, time.Duration(days)*day)
		if err != nil {
			return err
		}
		until := made.Cert().NotAfter
		answer := map[string]any{"dir": f.dir, "name": f.name, "ca": made.File(ca.CertFile), "crl": made.File(ca.ListFile), "until": until.UTC()}
		return a.print(answer, func(w io.Writer) {
			fmt.Fprintf(w, "authority %s is in %s, until %s\n", f.name, f.dir, until.Format(time.DateOnly))
		})
	}
	return cmd
}

func (a *app) caIssue(f *caFlags) *cobra.Command {
	days := int(ca.DefaultTerm / day)
	cmd := &cobra.Command{
		Use:   "issue NAME",
		Short: "Make a key and a certificate for a node or a person",
		Example: `  wherry ca issue n1 --node --host 10.0.0.5 --host n1.example
  wherry ca issue ann --caps inject,read,write --days 90 --out /media/ann`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().Var(newList(&f.caps, "inject,read,write"), "caps", "capabilities, with commas between: inject, read, write, admin, device, or none; a node has member besides")
	cmd.Flags().BoolVar(&f.node, "node", false, "for a node: others can dial it")
	cmd.Flags().StringArrayVar(&f.hosts, "host", nil, fmt.Sprintf("name or IP address at which a node is dialled; may be repeated, %d at most", ca.MaxHosts))
	cmd.Flags().IntVar(&days, "days", days, "how long it is good for, in days, "+dayRange()+", and no longer than the authority")
	f.outDir(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		f.days = days
		return a.issue(f, args[0])
	}
	return cmd
}

// pair are the files of a name's certificate and key.
func (f *caFlags) pair(name string) (cert, key string) {
	at := filepath.Join(f.out, strings.ReplaceAll(name, "/", "-"))
	return at + ".crt", at + ".key"
}

// makeOut makes the folder for what is issued; unmake removes what it made, as far as nothing is in there.
func (f *caFlags) makeOut() (unmake func(), err error) {
	var made []string
	for dir := filepath.Clean(f.out); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		made = append(made, dir)
	}
	unmake = func() {
		for _, dir := range made {
			os.Remove(dir)
		}
	}
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		unmake()
		return nil, err
	}
	return unmake, nil
}

func (a *app) issue(f *caFlags, name string) (err error) {
	caps, err := cluster.ParseCaps(f.caps)
	if err != nil {
		return usageError{err}
	}
	if f.node {
		caps |= cluster.CapMember
	}
	if err := checkDays(f.days); err != nil {
		return err
	}
	authority, err := ca.Open(f.dir)
	if err != nil {
		return err
	}
	certFile, keyFile := f.pair(name)
	for _, file := range []string{certFile, keyFile} { // before anything is issued
		if _, err := os.Lstat(file); err == nil {
			return usagef("%s is there already: move it away, or choose another folder with --out", file)
		}
	}
	unmake, err := f.makeOut()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			unmake()
		}
	}()
	cert, certText, keyText, err := authority.Issue(ca.Request{Principal: cluster.Principal{Name: name, Caps: caps}, Node: f.node, Hosts: f.hosts, Term: time.Duration(f.days) * day})
	if err != nil {
		return err
	}
	if err := ca.WriteNew(keyFile, keyText, 0o600); err != nil {
		return err
	}
	if err := ca.WriteNew(certFile, certText, 0o644); err != nil {
		return err
	}
	row := rowOf(cert)
	row.Cert, row.Key = certFile, keyFile
	return a.print(row, func(w io.Writer) {
		fmt.Fprintf(w, "%s (%s) has %s and %s, until %s\n", row.Name, strings.Join(row.Caps, ","), certFile, keyFile, cert.Until.Format(time.DateOnly))
	})
}

func (a *app) caRenew(f *caFlags) *cobra.Command {
	days := int(ca.DefaultTerm / day)
	cmd := &cobra.Command{
		Use:   "renew NAME|SERIAL",
		Short: "Make a certificate that is good for longer, for the same key",
		Long: `The key stays where it is and is not needed. NAME.crt in --out is replaced;
a node that reads it uses it from its next connection on. The certificate before
stays good until it expires.`,
		Example: `  wherry ca renew n1 --out /etc/wherry
  wherry ca renew ann --days 90`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().IntVar(&days, "days", days, "how long it is good for, in days, "+dayRange()+", and no longer than the authority")
	f.outDir(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) (err error) {
		if err := checkDays(days); err != nil {
			return err
		}
		authority, err := ca.Open(f.dir)
		if err != nil {
			return err
		}
		unmake, err := f.makeOut()
		if err != nil {
			return err
		}
		defer func() {
			if err != nil {
				unmake()
			}
		}()
		if err := f.checkRenewal(authority, args[0]); err != nil {
			return err
		}
		cert, text, err := authority.Renew(args[0], time.Duration(days)*day)
		if err != nil {
			return err
		}
		row := rowOf(cert)
		row.Cert, _ = f.pair(row.Name)
		if err := ca.Replace(row.Cert, text, 0o644); err != nil {
			return err
		}
		return a.print(row, func(w io.Writer) {
			fmt.Fprintf(w, "%s has %s, until %s\n", row.Name, row.Cert, cert.Until.Format(time.DateOnly))
		})
	}
	return cmd
}

// checkRenewal says that a certificate would replace the authority's own: one of the
// name "ca", in the authority's folder.
func (f *caFlags) checkRenewal(authority *ca.Authority, nameOrSerial string) error {
	list, err := authority.List()
	for _, c := range list {
		if c.Principal.Name == nameOrSerial || c.Serial == nameOrSerial {
			file, _ := f.pair(c.Principal.Name)
			return checkOut(file, authority.File(ca.CertFile))
		}
	}
	return err // and what is not there, Renew says
}

func (a *app) caRevoke(f *caFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke NAME|SERIAL",
		Short: "Have nodes refuse a certificate, or all of a name",
		Long: `Write the certificate, or all of a name, into the authority's list of revoked
ones (ca.crl). Give that file to every node: it reads the new list within a
second, refuses the certificate, and ends the connections that were made with it.`,
		Example: `  wherry ca revoke ann
  wherry ca revoke 52b1c6f7d4a84c0f9f0f4a5f3b2d1e0c`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			authority, err := ca.Open(f.dir)
			if err != nil {
				return err
			}
			revoked, err := authority.Revoke(args[0])
			if err != nil {
				return err
			}
			rows := []caRow{}
			for _, c := range revoked {
				rows = append(rows, rowOf(c))
			}
			answer := map[string]any{"crl": authority.File(ca.ListFile), "revoked": rows}
			return a.print(answer, func(w io.Writer) {
				for _, r := range rows {
					fmt.Fprintf(w, "%s %s is revoked\n", r.Name, r.Serial)
				}
				fmt.Fprintf(w, "give %s to every node\n", authority.File(ca.ListFile))
			})
		},
	}
}

func (a *app) caList(f *caFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Short:   "List what the authority has issued",
		Example: "  wherry ca ls\n  wherry ca ls --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			authority, err := ca.Open(f.dir)
			if err != nil {
				return err
			}
			list, err := authority.List()
			if err != nil {
				return err
			}
			rows := []caRow{}
			for _, c := range list {
				rows = append(rows, rowOf(c))
			}
			return a.print(rows, func(w io.Writer) {
				for _, r := range rows {
					fmt.Fprintf(w, "%-16s %-6s %-24s %-8s %s  %s %s\n", r.Name, r.Kind, strings.Join(r.Caps, ","), r.note(), r.Until.Format(time.DateOnly), r.Serial, strings.Join(r.Hosts, ","))
				}
			})
		},
	}
}

// caRow is a certificate as people and programs see it.
type caRow struct {
	Name   string    `json:"name"`
	Kind   string    `json:"kind"` // node or client
	Caps   []string  `json:"caps"`
	Hosts  []string  `json:"hosts"`
	Serial string    `json:"serial"`
	From   time.Time `json:"from"`
	Until  time.Time `json:"until"`
	State  string    `json:"state"` // good, expired or revoked
	Cert   string    `json:"cert,omitempty"`
	Key    string    `json:"key,omitempty"`
}

func rowOf(c *ca.Cert) caRow {
	r := caRow{Name: c.Principal.Name, Kind: "client", Caps: capList(c.Principal.Caps), Hosts: append([]string{}, c.Hosts...), Serial: c.Serial,
		From: c.From.UTC(), Until: c.Until.UTC(), State: string(c.State)}
	if c.Node {
		r.Kind = "node"
	}
	return r
}

// note is the state, or that the end is near.
func (r *caRow) note() string {
	if r.State == string(ca.Good) && time.Until(r.Until) < soon {
		return "renew"
	}
	return r.State
}
