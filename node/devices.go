package node

import (
	"fmt"

	"github.com/wherry-fabric/wherry/control"
	"github.com/wherry-fabric/wherry/device/lender"
	"github.com/wherry-fabric/wherry/pool/component"
)

// maxLent bounds the devices that a node lends.
const maxLent = 256

// lendings are the devices that a configuration lends.
func (c *Config) lendings() ([]lender.Spec, error) {
	if len(c.Lend) > maxLent {
		return nil, fmt.Errorf("lend: %d devices, at most %d are allowed", len(c.Lend), maxLent)
	}
	var all []lender.Spec
	for _, text := range c.Lend {
		s, err := lender.ParseSpec(text)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// lendDevices opens what the configuration lends. A node that lends nothing answers that it has no devices.
func (n *Node) lendDevices(limits lender.Limits) error {
	specs, err := n.cfg.lendings()
	if err != nil {
		return err
	}
	if n.devices, err = lender.New(lender.Config{Element: n.el, Log: n.log, Limits: limits, Reserve: n.reserveForDevices, GrantFile: n.cfg.LendGrants}); err != nil {
		return err
	}
	for _, s := range specs {
		if err := n.devices.Lend(s); err != nil {
			return err
		}
	}
	return control.ServeDevices(n.rpc, n.devices)
}

// reserveForDevices counts registers and queues as lent memory.
func (n *Node) reserveForDevices(what string, bytes int64) (release func(), err error) {
	charge := component.Charge{Lent: component.Lent{Bytes: bytes, Files: 1}, What: what}
	if err := n.account.Reserve(charge); err != nil {
		return nil, err
	}
	return func() { n.account.Release(charge) }, nil
}
