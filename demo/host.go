package demo

import (
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/wherry-fabric/wherry/demo/debgraph"
	"github.com/wherry-fabric/wherry/demo/report"
)

// Host describes this machine, this program and a graph for a report. The caller adds what
// only it knows: transports, pinning, the emulated round trip.
func Host(g *debgraph.Graph, elements int, now time.Time) report.Environment {
	host, err := os.Hostname()
	if err != nil {
		host = "unnamed"
	}
	return report.Environment{
		Dataset: g.Meta.Title, DatasetDate: g.Meta.Date(), Vertices: g.Len(), Edges: g.Edges(),
		Elements: elements, Machine: host + ", " + runtime.GOARCH, CPU: cpuName(), Cores: runtime.NumCPU(),
		Kernel: firstLine("/proc/sys/kernel/osrelease"), GoVersion: runtime.Version(), TakenAt: now.UTC().Format(time.RFC3339),
	}
}

const unknown = "unknown"

// firstLine is a small file's first line.
func firstLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return unknown
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line)
}

// cpuName is what Linux calls the first CPU. Some architectures have no name there.
func cpuName() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return unknown
	}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return unknown
}
