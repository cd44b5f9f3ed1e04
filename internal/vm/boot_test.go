package vm

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestBrokenGuest: a guest that a module is refused by, or whose archive ends too early, does not come up, and its console says why.
func TestBrokenGuest(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the guest is amd64's, as its tools are")
	}
	tools, err := Find()
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	for _, c := range []struct {
		name string
		cfg  func(t *testing.T, tools *Tools) Config
		says string
	}{
		{"module", func(t *testing.T, tools *Tools) Config {
			files, err := tools.modules()
			if err != nil {
				t.Fatal(err)
			}
			const name = "crc32c_generic"
			code, err := exec.Command("xz", "-dc", files[name]).Output()
			if err != nil {
				t.Fatal(files[name], err)
			}
			tools.tree = t.TempDir()
			code = bytes.Replace(code, []byte("vermagic="), []byte("vermagik="), 1) // it does not say for which kernel it was built
			if err := os.WriteFile(filepath.Join(tools.tree, name+".ko"), code, 0o600); err != nil {
				t.Fatal(err)
			}
			return Config{Modules: []string{name}}
		}, "insmod"},
		{"archive", func(t *testing.T, tools *Tools) Config {
			image, err := tools.initramfs(&Config{})
			if err != nil {
				t.Fatal(err)
			}
			short := filepath.Join(t.TempDir(), "short")
			if err := os.WriteFile(short, image[:len(image)-512], 0o600); err != nil {
				t.Fatal(err)
			}
			return Config{Args: []string{"-initrd", short}} // the last one counts
		}, "Kernel panic"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			mine := *tools
			cfg := c.cfg(t, &mine)
			cfg.Dir = t.TempDir()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			v, err := mine.Start(ctx, cfg)
			if err == nil {
				v.Close()
				t.Fatal("it is ready")
			}
			if text := err.Error(); ctx.Err() != nil || !strings.Contains(text, "does not come up") || !strings.Contains(text, c.says) {
				t.Error(err)
			}
		})
	}
}
