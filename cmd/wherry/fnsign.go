package main

import (
	"crypto/ed25519"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/inject/image"
	"github.com/wherry-fabric/wherry/inject/trust"
	"github.com/wherry-fabric/wherry/node"
)

func (a *app) fnSignCommand() *cobra.Command {
	var key, out string
	cmd := &cobra.Command{
		Use:   "sign IMAGE",
		Short: "Sign a function image",
		Long: `Add a key's signature to an image. It covers every byte of the manifest and the
code, so a change of either takes a new one. What the image is (its id) stays the
same, and other keys' signatures stay.`,
		Example: "  wherry fn sign tally.wfn --key release.key\n  wherry fn sign tally.wfn --key release.key -o signed.wfn",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if key == "" {
				return usagef("say with which key: --key FILE; wherry fn keys new makes one")
			}
			private, err := readSigningKey(key)
			if err != nil {
				return err
			}
			img, err := loadImage(args[0])
			if err != nil {
				return err
			}
			switch {
			case out != "":
			case isReady(args[0]):
				return usagef("%s is a ready function, which is in no file: say where the signed image goes, as with -o %s.wfn", args[0], args[0])
			default:
				out = args[0]
			}
			if err := checkOut(out, key); err != nil {
				return err
			}
			if img, err = img.Sign(private); err != nil {
				return err
			}
			err = a.writeTo(out, func(w io.Writer) error {
				_, err := w.Write(img.Encode())
				return err
			})
			if err != nil || out == "-" {
				return err
			}
			public := private.Public().(ed25519.PublicKey)
			v := map[string]any{"name": img.Name(), "id": img.ID().String(), "file": out, "key": trust.Format(public), "signatures": len(img.Signatures())}
			return a.print(v, func(w io.Writer) {
				fmt.Fprintf(w, "%s: %s is signed by %s (%d %s)\n", out, img.Name(), trust.Short(public), len(img.Signatures()), plural(len(img.Signatures()), "signature"))
			})
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "the key that signs: a file that wherry fn keys new made")
	cmd.Flags().StringVarP(&out, "output", "o", "", "file for the signed image, - for standard output; IMAGE itself if that is a file and -o is not given")
	return cmd
}

// verified is what verify says of one form of code.
type verified struct {
	Form string   `json:"form"`
	Runs bool     `json:"runs"`
	By   []string `json:"by,omitempty"`
	Why  string   `json:"why,omitempty"`
}

func (a *app) fnVerifyCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "verify IMAGE",
		Short: "Say whether an image's native code would be trusted",
		Long: `Check an image's signatures against a trust file as a node with that file does that
runs as the file's owner, and say for each form of its code whether it may run, and why not. If code that
needs a signature may not run, the exit code is 3.`,
		Example: "  wherry fn verify tally.wfn --file /etc/wherry/trust.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			img, err := loadImage(args[0])
			if err != nil {
				return err
			}
			keys, err := readTrustFile(file, false)
			if err != nil {
				return err
			}
			return a.verify(img, keys)
		},
	}
	trustFlag(cmd, &file)
	return cmd
}

func (a *app) verify(img *image.Image, keys []node.TrustedKey) error {
	policy, err := node.TrustPolicy(keys)
	if err != nil {
		return err
	}
	verdict := policy.Judge(img)
	var list []verified
	var refused error
	for _, e := range img.Entries() {
		if n := len(list); n > 0 && list[n-1].Form == e.Form.String() {
			continue
		}
		v := verified{Form: e.Form.String()}
		signers, why := verdict.Allows(e.Form, img.Name())
		if v.Runs, v.Why = why == "", why; why != "" {
			refused = fmt.Errorf("%w: %s: %s: %s", image.ErrUntrusted, img.Name(), v.Form, why)
		}
		for _, s := range signers {
			for _, k := range policy.Keys() {
				if k.Public.Equal(ed25519.PublicKey(s)) {
					v.By = append(v.By, k.Name)
				}
			}
		}
		list = append(list, v)
	}
	err = a.print(map[string]any{"name": img.Name(), "id": img.ID().String(), "forms": list}, func(w io.Writer) {
		for _, v := range list {
			switch {
			case !v.Runs:
				fmt.Fprintf(w, "%-12s no: %s\n", v.Form, v.Why)
			case len(v.By) > 0:
				fmt.Fprintf(w, "%-12s yes, by %s\n", v.Form, orAll(v.By, ""))
			case v.Form == image.Wasm.String():
				fmt.Fprintf(w, "%-12s yes: a sandbox contains it\n", v.Form)
			default:
				fmt.Fprintf(w, "%-12s yes: it comes with the program\n", v.Form)
			}
		}
	})
	if err != nil {
		return err
	}
	return refused
}
