package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed work/workloads.c
var source []byte

//go:embed work/train.py
var training []byte

// workload is a program's work on so much memory, of which a part is local.
type workload struct {
	name       string
	mib, local int
	train      bool // by PyTorch; the others are workloads.c's
}

var workloads = [...]workload{{"quicksort", 64, 16, false}, {"wordcount", 128, 32, false}, {"scan", 64, 16, false}, {"zipf", 64, 16, false},
	{"train_512", 900, 512, true}, {"train_256", 900, 256, true}, {"train_128", 900, 128, true}}

func workloadNames() (names []string) {
	for _, w := range workloads {
		names = append(names, w.name)
	}
	return names
}

// python is the distribution's, which has its PyTorch.
var python = "/usr/bin/python3"

// compile makes the program of all workloads in a folder. It is dynamic, as programs of a distribution are.
func compile(dir string) (string, error) {
	c, program := filepath.Join(dir, "workloads.c"), filepath.Join(dir, "workloads")
	if err := errors.Join(os.WriteFile(c, source, 0o600), os.WriteFile(filepath.Join(dir, "train.py"), training, 0o600)); err != nil {
		return "", err
	}
	if out, err := exec.Command("gcc", "-O2", "-o", program, c, "-lm").CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the workloads (apt-get install gcc libc6-dev): %w\n%s", err, out)
	}
	return program, nil
}

// args is the command that does it; program is what compile made.
func (w workload) args(program string) []string {
	if w.train {
		return []string{python, filepath.Join(filepath.Dir(program), "train.py"), strconv.Itoa(w.mib)}
	}
	return []string{program, w.name, strconv.Itoa(w.mib)}
}

// check reports what is missing for it.
func (w workload) check() error {
	if !w.train {
		return nil
	}
	if out, err := exec.Command(python, "-c", "import torch").CombinedOutput(); err != nil {
		return fmt.Errorf("needs PyTorch (apt-get install python3-torch): %w\n%s", err, out)
	}
	return nil
}

// needs is what a node has to lend for it, and swap to hold.
func (w workload) needs() int64 { return int64(w.mib)*3/2<<20 + 64<<20 }

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
