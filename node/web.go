package node

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// web is the node's HTTP side.
type web struct {
	registry *prometheus.Registry
	server   *http.Server
	listener net.Listener // nil: none
}

const (
	// headerTime bounds how long a client may take to ask.
	headerTime = 5 * time.Second
	// scrapesAtOnce bounds the /metrics answers under way.
	scrapesAtOnce = 4
)

func newWeb(n *Node) (*web, error) {
	w := &web{registry: prometheus.NewRegistry()}
	for _, c := range []prometheus.Collector{newCollector(n), newCallCollector(n), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := w.registry.Register(c); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(w.registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapesAtOnce, Timeout: headerTime}))
	mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprintln(rw, "ok") })
	mux.HandleFunc("GET /readyz", func(rw http.ResponseWriter, _ *http.Request) {
		if n.stopping.Load() {
			http.Error(rw, "stopping", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(rw, "ready")
	})
	w.server = &http.Server{Handler: mux, ReadHeaderTimeout: headerTime, ReadTimeout: headerTime, WriteTimeout: 2 * headerTime, MaxHeaderBytes: 16 << 10}
	if n.cfg.HTTP == "" {
		return w, nil
	}
	var err error
	if w.listener, err = net.Listen("tcp", n.cfg.HTTP); err != nil {
		return nil, inUse(fmt.Errorf("http: %w", err), "http")
	}
	return w, nil
}

// close ends the HTTP side. The server knows of its listener only once it serves.
func (w *web) close() error {
	err := w.server.Close()
	if w.listener != nil {
		if e := w.listener.Close(); err == nil && !errors.Is(e, net.ErrClosed) {
			err = e
		}
	}
	return err
}

// HTTPAddr is where /metrics is served; "" if it is not.
func (n *Node) HTTPAddr() string {
	if n.web.listener == nil {
		return ""
	}
	return n.web.listener.Addr().String()
}

// AddCollector adds metrics of what is built on the node. It must come before Run.
func (n *Node) AddCollector(c prometheus.Collector) error { return n.web.registry.Register(c) }
