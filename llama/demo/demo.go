// Package demo carries relay-tiny, a language model of 870,016 parameters that
// was made for this project, so that a first `relay up` has something to serve
// with no network. It promises the same bytes everywhere; it runs nothing.
//
// The program and the text that made the model are in the folder train.
package demo

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Name is what the model is called, and with ".gguf" its file.
const Name = "relay-tiny"

// SHA256 is the hash of the file, in hex.
const SHA256 = "50074f285d798da86ee9fde53bf53adda10c396893bc4e3136d204ade7cc476f"

//go:embed relay-tiny.gguf
var file string

// GGUF returns a copy of the model's file.
func GGUF() []byte { return []byte(file) }

// Size is the length of the file in bytes.
func Size() int64 { return int64(len(file)) }

// Write puts the model into dir, which it makes where it is missing, and
// returns the path of the file. A file of that name with the right bytes is
// left alone, any other is replaced; nobody ever sees half of one.
func Write(dir string) (string, error) {
	path, err := filepath.Abs(filepath.Join(dir, Name+".gguf"))
	if err != nil {
		return "", fmt.Errorf("%w to %s: %w", ErrState, dir, err)
	}
	same, err := isWritten(path)
	if err == nil && !same {
		err = write(path)
	}
	if err != nil {
		return "", fmt.Errorf("%w to %s: %w", ErrState, path, err)
	}
	return path, nil
}

// isWritten says whether path is the model already.
func isWritten(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() {
		return false, fmt.Errorf("it exists and is not a file")
	}
	if info.Size() != Size() {
		return false, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return false, err
	}
	return hex.EncodeToString(h.Sum(nil)) == SHA256, nil
}

// write makes the file aside, and then gives it its name.
func write(path string) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+Name+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignore(f.Close(), os.ErrClosed), ignore(os.Remove(f.Name()), fs.ErrNotExist))
		}
	}()
	if _, err := io.WriteString(f, file); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// ignore drops an error that is one of known.
func ignore(err error, known ...error) error {
	if slices.ContainsFunc(known, func(k error) bool { return errors.Is(err, k) }) {
		return nil
	}
	return err
}
