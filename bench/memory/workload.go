package main

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed work/workloads.c
var source []byte

// workload is a program's work on so much memory, of which a quarter is local.
type workload struct {
	name string
	mib  int
}

var workloads = [...]workload{{"quicksort", 64}, {"wordcount", 128}, {"scan", 64}, {"zipf", 64}}

func workloadNames() (all []string) {
	for _, w := range workloads {
		all = append(all, w.name)
	}
	return all
}

// compile makes the program of all workloads in a folder. It is dynamic, as programs of a distribution are.
func compile(dir string) (string, error) {
	c, program := filepath.Join(dir, "workloads.c"), filepath.Join(dir, "workloads")
	if err := os.WriteFile(c, source, 0o600); err != nil {
		return "", err
	}
	if out, err := exec.Command("gcc", "-O2", "-o", program, c, "-lm").CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the workloads (apt-get install gcc libc6-dev): %w\n%s", err, out)
	}
	return program, nil
}

func (w workload) args(program string) []string {
	return []string{program, w.name, strconv.Itoa(w.mib)}
}

// local is wherry's share of it.
func (w workload) local() string { return fmt.Sprintf("%dMiB", w.mib/4) }

// answer is what a run printed: what it found, and how long it took.
type answer struct {
	found   string
	seconds float64
}

func parse(out string) (answer, error) {
	fields := strings.Fields(out)
	if len(fields) != 2 {
		return answer{}, fmt.Errorf("a workload printed %q, not a checksum and seconds", out)
	}
	seconds, err := strconv.ParseFloat(fields[1], 64)
	if err != nil || seconds <= 0 {
		return answer{}, fmt.Errorf("a workload took %q seconds", fields[1])
	}
	return answer{fields[0], seconds}, nil
}
