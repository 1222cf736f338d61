//go:build !(linux && amd64 && cgo)

package txos

import "context"

var elsewhere = &Error{
	Kind: ErrUnsupported,
	What: "transactions within a program need Linux on x86-64 and a build with cgo (CGO_ENABLED=1 and a C compiler)",
}

// Do fails with [ErrUnsupported] here.
func Do(context.Context, func() error, ...Option) error { return elsewhere }

// Go fails with [ErrUnsupported] here.
func Go(func() error) error { return elsewhere }

// Pause fails with [ErrUnsupported] here.
func Pause(func() error) error { return elsewhere }

// LeaveOut fails with [ErrUnsupported] here.
func LeaveOut(path, suffix string) (int, error) { return 0, elsewhere }

// InTransaction is false here.
func InTransaction() bool { return false }

// Stats are counters of one thread.
type Stats struct {
	Begun, Committed, Aborted, Calls, Trapped, Unsupported, ShortCuts uint64
}

// ReadStats fails with [ErrUnsupported] here.
func ReadStats() (Stats, error) { return Stats{}, elsewhere }

// LibraryVersion fails with [ErrUnsupported] here.
func LibraryVersion() (string, error) { return "", elsewhere }
