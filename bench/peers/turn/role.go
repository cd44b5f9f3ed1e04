package turn

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/wherry-fabric/wherry/bench/peers/echo"
)

// Role runs this process as one side of a turn: what the specification on r
// says. It returns when r ends.
func Role(ctx context.Context, r io.Reader, w io.Writer) error {
	in, out := json.NewDecoder(r), json.NewEncoder(w)
	var s spec
	if err := in.Decode(&s); err != nil {
		return fmt.Errorf("no role on standard input (this command is started by the benchmark itself): %w", err)
	}
	if s.Loop {
		return loop(in, out)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*s.Time+graceTime)
	defer cancel()
	peer, err := echo.Find(s.Peer)
	if err != nil {
		return err
	}
	o := echo.Options{Transport: s.Transport, Dir: s.Dir, Policy: s.Policy}
	if s.Server {
		err = serve(ctx, peer, o, in, out)
	} else {
		err = measure(ctx, peer, o, &s, in, out)
	}
	if err != nil {
		return out.Encode(answer{Error: err.Error()})
	}
	return nil
}

func serve(ctx context.Context, peer echo.Peer, o echo.Options, in *json.Decoder, out *json.Encoder) error {
	server, err := peer.Serve(ctx, o)
	if err != nil {
		return err
	}
	if err := out.Encode(answer{Addr: server.Addr(), Procs: runtime.GOMAXPROCS(0)}); err != nil {
		return err
	}
	for hear(in, wordMallocs) {
		if err := out.Encode(answer{Mallocs: mallocs()}); err != nil {
			return err
		}
	}
	return server.Close()
}

func measure(ctx context.Context, peer echo.Peer, o echo.Options, s *spec, in *json.Decoder, out *json.Encoder) error {
	c, err := peer.Dial(ctx, o, s.Addr)
	if err != nil {
		return err
	}
	m := newMeter(c, s.Work)
	if _, err := m.run(s.Warm); err != nil {
		return err
	}
	if err := out.Encode(answer{Procs: runtime.GOMAXPROCS(0)}); err != nil {
		return err
	}
	var when window // all clients of the turn have the same
	if in.Decode(&when) != nil {
		return c.Close()
	}
	time.Sleep(time.Until(when.Begin))
	before := mallocs()
	sample, err := m.run(time.Until(when.End))
	if err != nil {
		return err
	}
	sample.AllocsPerOp = float64(mallocs()-before) / float64(max(sample.Calls, 1))
	if err := out.Encode(answer{Sample: &sample}); err != nil {
		return err
	}
	return c.Close()
}

// hear waits for a word; false at the end of the input or for another word.
func hear(in *json.Decoder, want string) bool {
	var word string
	return in.Decode(&word) == nil && word == want
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
