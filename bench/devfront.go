package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/wherry-fabric/wherry/device"
	"github.com/wherry-fabric/wherry/device/nbd"
	"github.com/wherry-fabric/wherry/device/nvme/host"
)

const (
	// FrontNBD serves the borrowed drive by NBD, and FrontGuest to a virtual machine.
	FrontNBD   = "nbd"
	FrontGuest = "guest"
	// frontTurns is how often both sides take turns, and frontTurn how long fio reads in one.
	frontTurns = 5
	frontTurn  = time.Second
	// frontStart bounds the wait for a program that is started to listen.
	frontStart = 10 * time.Second
)

// turns is how often something is measured.
func (c *Config) turns(usual int) int {
	if c.Rounds > 0 {
		return c.Rounds
	}
	return usual
}

// borrower makes an element that borrows what a crew without clients lends.
func (c *Config) borrower(ctx context.Context, spec role, dir, name string) (_ *client, _ *crew, err error) {
	crew, err := c.muster(ctx, spec, dir, 0)
	if err != nil {
		return nil, nil, err
	}
	spec.Servers, spec.Role, spec.Name, spec.scheme = crew.infos, "client", name, c.scheme
	w := &client{spec: &spec, ctx: ctx, rand: rand.New(rand.NewPCG(spec.Seed, 7))}
	if w.station, err = newStation(&spec, false); err != nil {
		crew.end()
		return nil, nil, err
	}
	if err := w.dialAll(ctx, spec.Servers); err != nil {
		w.close()
		crew.end()
		return nil, nil, err
	}
	return w, crew, nil
}

// driveNBD has fio read a borrowed drive by NBD, in turns with the memory of nbdkit: one read at a time, and driveDepth.
func (c *Config) driveNBD(ctx context.Context, spec role, dir string) (*Result, error) {
	for _, tool := range [][2]string{{"fio", "fio"}, {"nbdkit", "nbdkit"}} {
		if _, err := exec.LookPath(tool[0]); err != nil {
			return nil, fmt.Errorf("bench: no %s to compare with: %w: install it (Debian: apt-get install %s)", tool[0], err, tool[1])
		}
	}
	w, crew, err := c.borrower(ctx, spec, dir, "front")
	if err != nil {
		return nil, err
	}
	defer crew.end()
	defer w.close()
	d, err := w.borrow(driveName, device.Exclusive)
	if err != nil {
		return nil, err
	}
	defer d.Close(context.WithoutCancel(ctx))
	own, stop, err := serveNBD(d, dir)
	if err != nil {
		return nil, err
	}
	defer stop()
	other, end, err := startNbdkit(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer end()
	r := &Result{}
	hostInfo(r, c)
	r.Set("clock_ns", clockCost())
	return r, errors.Join(c.compareNBD(ctx, r, own, other), r.Err())
}

// compareNBD measures both servers.
func (c *Config) compareNBD(ctx context.Context, r *Result, own, other string) error {
	for _, path := range []string{own, other} { // what was never written is cheaper to read
		if _, err := fio(ctx, path, "write", driveDepth); err != nil {
			return err
		}
	}
	for _, depth := range []int{1, driveDepth} {
		var rates [2]samples
		var ratios samples
		for i := range c.turns(frontTurns) {
			if c.Progress != nil {
				c.Progress(fmt.Sprintf("%d under way", depth), float64(i)/float64(c.turns(frontTurns)))
			}
			for side, path := range []string{own, other} {
				rate, err := fio(ctx, path, "randread", depth, "--time_based", "--runtime="+frontTurn.String())
				if err != nil {
					return err
				}
				rates[side] = append(rates[side], rate)
			}
			ratios = append(ratios, rates[0][i]/rates[1][i])
		}
		r.Set(fmt.Sprintf("iops_%d", depth), rates[0].p(0.5))
		r.Set(fmt.Sprintf("nbdkit_iops_%d", depth), rates[1].p(0.5))
		r.Set(fmt.Sprintf("iops_%d_over_nbdkit", depth), ratios.p(0.5))
	}
	return nil
}

// serveNBD serves a drive at a Unix socket.
func serveNBD(d *host.Drive, dir string) (path string, stop func() error, err error) {
	path = filepath.Join(dir, "nbd.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		return "", nil, err
	}
	s, err := nbd.New(d, driveName, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", nil, errors.Join(err, l.Close())
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	return path, func() error {
		s.Close()
		return <-served
	}, nil
}

// startNbdkit starts nbdkit with memory as large as the drive.
func startNbdkit(ctx context.Context, dir string) (path string, end func(), err error) {
	path = filepath.Join(dir, "nbdkit.sock")
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "nbdkit", "--foreground", "--unix", path, "memory", fmt.Sprint(verbSpan))
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("bench: nbdkit: %w", err)
	}
	over := make(chan error, 1)
	go func() { over <- cmd.Wait() }()
	end = func() {
		cmd.Process.Kill()
		<-over
	}
	for late := time.After(frontStart); ; {
		if conn, err := net.Dial("unix", path); err == nil {
			conn.Close()
			return path, end, nil
		}
		select {
		case err := <-over:
			return "", nil, fmt.Errorf("bench: nbdkit has ended: %w: %s", err, said.Bytes())
		case <-late:
			end()
			return "", nil, fmt.Errorf("bench: nbdkit does not listen within %v", frontStart)
		case <-time.After(time.Millisecond):
		}
	}
}

// fio reads or writes the export at a socket by pages, with depth of them under way: how many a second.
func fio(ctx context.Context, path, way string, depth int, args ...string) (perSecond float64, err error) {
	cmd := exec.CommandContext(ctx, "fio", append([]string{"--name=bench", "--ioengine=nbd", "--uri=nbd+unix:///?socket=" + path, "--rw=" + way, fmt.Sprint("--bs=", drivePage),
		fmt.Sprint("--iodepth=", depth), fmt.Sprint("--size=", verbSpan), "--output-format=json"}, args...)...)
	var said bytes.Buffer
	cmd.Stderr, cmd.Dir = &said, os.TempDir()
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("bench: fio: %w: %s%s", err, out, said.Bytes())
	}
	return fioRate(out)
}

// fioRate reads what fio prints. Its engine for NBD says something of its own first.
func fioRate(out []byte) (perSecond float64, err error) {
	var report struct {
		Jobs []struct {
			Error       int
			Read, Write struct{ IOPS float64 }
		}
	}
	err = json.Unmarshal(out[max(bytes.IndexByte(out, '{'), 0):], &report)
	if err != nil || len(report.Jobs) != 1 || report.Jobs[0].Error != 0 {
		return 0, fmt.Errorf("bench: fio says %.2000s: %v", out, err)
	}
	j := report.Jobs[0]
	if j.Read.IOPS+j.Write.IOPS <= 0 {
		return 0, fmt.Errorf("bench: fio moved nothing: %.2000s", out)
	}
	return j.Read.IOPS + j.Write.IOPS, nil
}
