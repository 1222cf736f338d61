//go:build linux && amd64 && cgo

package txos_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"txos"
)

// Goroutines that take part see and make the same changes, which are published together.
func TestGoroutinesTakePart(t *testing.T) {
	dir := place(t)
	write(t, filepath.Join(dir, "old"), "x")
	err := txos.Do(background, func() error {
		write(t, filepath.Join(dir, "begun"), "1")
		for i := 0; i < 8; i++ {
			i := i
			good(t, txos.Go(func() error {
				if !txos.InTransaction() {
					t.Error("a goroutine of Go is outside")
				}
				if read(t, filepath.Join(dir, "begun")) != "1" {
					t.Error("it does not see what was made before")
				}
				if i == 3 {
					good(t, os.Remove(filepath.Join(dir, "old")))
				}
				if i == 4 {
					// One of its own.
					return txos.Go(func() error {
						write(t, filepath.Join(dir, "deeper"), "x")
						return nil
					})
				}
				if i == 5 {
					good(t, txos.Pause(func() error { return os.WriteFile(filepath.Join(dir, "paused"), nil, 0o644) }))
				}
				return os.WriteFile(filepath.Join(dir, fmt.Sprint("made", i)), nil, 0o644)
			}))
		}
		if seen := outsider(t, dir, "ls"); strings.Contains(seen, "made") || !strings.Contains(seen, "old") {
			t.Errorf("others see %q", seen)
		}
		return nil
	})
	good(t, err)
	if found := names(t, dir); found != "begun deeper made0 made1 made2 made3 made5 made6 made7 paused" {
		t.Errorf("published: %s", found)
	}
	if txos.InTransaction() {
		t.Error("still in a transaction")
	}
}

// The first error of a goroutine aborts, and is what Do returns.
func TestGoroutineErrorAborts(t *testing.T) {
	dir := place(t)
	broken := errors.New("broken")
	err := txos.Do(background, func() error {
		good(t, txos.Go(func() error {
			write(t, filepath.Join(dir, "made"), "x")
			return broken
		}))
		return nil
	})
	if err != broken {
		t.Errorf("it returned %v", err)
	}
	// And the function's own, for which the goroutines are waited for as well.
	var returned atomic.Bool
	err = txos.Do(background, func() error {
		started := make(chan struct{})
		defer func() { <-started }()
		good(t, txos.Go(func() error {
			close(started)
			defer returned.Store(true)
			for {
				if _, err := os.Stat(dir); err != nil {
					return err
				}
				runtime.Gosched()
			}
		}))
		return broken
	})
	if err != broken || !returned.Load() {
		t.Errorf("it returned %v, the goroutine %v", err, returned.Load())
	}
	err = txos.Do(background, func() error {
		good(t, txos.Go(func() error {
			write(t, filepath.Join(dir, "made"), "x")
			runtime.Goexit()
			return nil
		}))
		return nil
	})
	if !errors.Is(err, txos.ErrAborted) || !strings.Contains(err.Error(), "Goexit") {
		t.Errorf("it returned %v", err)
	}
	if found := names(t, dir); found != "" {
		t.Errorf("left: %s", found)
	}
}

func TestGoOutside(t *testing.T) {
	if err := txos.Go(func() error { return nil }); !errors.Is(err, txos.ErrNotInTransaction) {
		t.Errorf("it returned %v", err)
	}
}

// A conflict that a goroutine loses is the transaction's: all of it is done again.
func TestGoroutinesRetry(t *testing.T) {
	dir := place(t)
	path := filepath.Join(dir, "number")
	good(t, setNumber(path, 0))
	var times atomic.Int32
	done := make(chan error)
	for i := 0; i < 4; i++ {
		go func() {
			var err error
			for n := 0; n < 20 && err == nil; n++ {
				err = txos.Do(background, func() error {
					times.Add(1)
					return txos.Go(func() error {
						value, err := number(path)
						if err != nil {
							return err
						}
						return setNumber(path, value+1)
					})
				}, txos.Durable(false), txos.Retries(-1))
			}
			done <- err
		}()
	}
	for i := 0; i < 4; i++ {
		good(t, <-done)
	}
	if value, err := number(path); err != nil || value != 80 {
		t.Errorf("counted to %d in %d attempts: %v", value, times.Load(), err)
	}
}

// The context reaches them, too.
func TestContextReachesGoroutines(t *testing.T) {
	dir := place(t)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	err := txos.Do(ctx, func() error {
		good(t, txos.Go(func() error {
			cancel()
			for {
				if err := os.WriteFile(filepath.Join(dir, "made"), nil, 0o644); err != nil {
					return err
				}
				runtime.Gosched()
			}
		}))
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it returned %v", err)
	}
	if found := names(t, dir); found != "" {
		t.Errorf("left: %s", found)
	}
}
