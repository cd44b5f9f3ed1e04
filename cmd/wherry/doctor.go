package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-fabric/wherry/cluster/etcd"
	"github.com/wherry-fabric/wherry/doctor"
)

func (a *app) doctorCommand() *cobra.Command {
	var at etcd.Config
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check which features this machine has, and how to get the others",
		Long: `Look at this machine and say what of wherry works on it, what does not, and
what to do about it. Nothing is changed. With --etcd it also asks that etcd cluster,
as a manager would (docs/cluster.md). The exit code is 1 if wherry cannot
work here at all.`,
		Example: "  wherry doctor\n  wherry doctor --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			checks := doctor.Run(cmd.Context(), a.schemes)
			if len(at.Endpoints) > 0 {
				checks = append(checks, etcdCheck(cmd.Context(), at))
			}
			err := a.print(checks, func(w io.Writer) {
				marks := map[doctor.State]string{doctor.Good: "ok", doctor.Limited: "!!", doctor.Missing: "--"}
				for _, c := range checks {
					fmt.Fprintf(w, "%-2s  %-14s %s\n", marks[c.State], c.Name, c.Detail)
					if c.State != doctor.Good {
						fmt.Fprintf(w, "    %-14s for %s\n    %-14s do: %s\n", "", c.For, "", c.Do)
					}
				}
			})
			if err == nil && !doctor.Works(checks) {
				err = exitError(exitFailed)
			}
			return err
		},
	}
	p := cmd.Flags()
	p.StringArrayVar(&at.Endpoints, "etcd", nil, "ask this etcd cluster, too: http://host:2379 or https://…; may be repeated")
	p.StringVar(&at.TLS.Cert, "etcd-cert", "", "certificate that is shown to --etcd")
	p.StringVar(&at.TLS.Key, "etcd-key", "", "its key")
	p.StringVar(&at.TLS.CA, "etcd-ca", "", "certificate of the authority of --etcd, for https")
	return cmd
}

// etcdCheck asks an etcd cluster, as a manager would.
func etcdCheck(ctx context.Context, at etcd.Config) doctor.Check {
	c := doctor.Check{Name: "etcd", State: doctor.Good, For: "managers with --etcd", Detail: strings.Join(at.Endpoints, ", ") + " answers"}
	s, err := etcd.Dial(at)
	if err == nil {
		err = errors.Join(s.Ping(ctx), s.Close())
	}
	if err != nil {
		c.State, c.Detail = doctor.Missing, err.Error()
		c.Do = "check that etcd runs there, has a majority, and lets this machine in; or keep the cluster's state in the nodes (wherry node --manager DIR)"
	}
	return c
}
