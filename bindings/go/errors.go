package txos

import (
	"errors"
	"strings"
	"syscall"
)

// Why a transaction did not happen; errors.Is tells them apart. In each case nothing of it has
// happened.
var (
	// ErrConflict: somebody else changed what the transaction depends on, or won where two met. All
	// retries are used up; trying again later may help.
	ErrConflict = errors.New("txos: conflict")
	// ErrUnsupported: a call that can't be part of a transaction, with [Strict]; or this kernel has no
	// transactions within programs.
	ErrUnsupported = errors.New("txos: unsupported")
	// ErrFailed: publishing failed (no space, an I/O error) and was undone, or no transaction could be
	// begun.
	ErrFailed = errors.New("txos: failed")
	// ErrNotProduced: what the transaction was to come after ([After]) did not commit; or, with the Errno ESRCH, there is
	// nothing of that name.
	ErrNotProduced = errors.New("txos: not produced")
	// ErrAgain is for functions to return, also wrapped: what they need is not there yet. The function is called again, as
	// after a conflict; with [After], when what it comes after has ended. It counts as a retry.
	ErrAgain = errors.New("txos: again")
	// ErrAborted: the context was done, or a Do within this one failed and its error was not passed on.
	ErrAborted = errors.New("txos: aborted")
	// ErrLibrary: libtxos.so is missing, or too old for this package.
	ErrLibrary = errors.New("txos: no library")
	// ErrNotInTransaction: the calling goroutine is in no transaction. One that was started in a
	// transaction is outside of it, unless [Go] has started it.
	ErrNotInTransaction = errors.New("txos: not in a transaction")
)

// Error is why a transaction could not be begun, or did not happen.
type Error struct {
	// Kind is one of the variables above; errors.Is(err, kind) finds it.
	Kind error
	// What happened, in words, and what to do about it.
	What string
	// Path is where; empty if it has no place or that is not known.
	Path string
	// Errno is the error number that the library gave, or 0.
	Errno syscall.Errno
	// PID is the process that won a conflict, 0 if it is not known.
	PID int
	// Err is what the function returned in a transaction that was lost already, or why the context was
	// done; may be nil.
	Err error
}

// Error names the path once.
func (e *Error) Error() string {
	what := e.What
	// Most of the library's messages name the path themselves.
	if e.Path != "" && !strings.Contains(what, e.Path) {
		what = e.Path + ": " + what
	}
	return e.Kind.Error() + ": " + strings.TrimPrefix(what, "conflict: ")
}

// Is reports whether the error is of that kind.
func (e *Error) Is(target error) bool { return target == e.Kind }

// Unwrap gives the function's own error, or the context's.
func (e *Error) Unwrap() error { return e.Err }

// Reasons of an abort, as in txos.h.
const (
	asked       = 1
	conflict    = 2
	unsupported = 3
	producer    = 8
)

func kindOfAbort(reason uint32) error {
	switch reason {
	case asked:
		return ErrAborted
	case conflict:
		return ErrConflict
	case unsupported:
		return ErrUnsupported
	case producer:
		return ErrNotProduced
	}
	return ErrFailed
}

func kindOfBegin(errno syscall.Errno, after bool) error {
	switch errno {
	case syscall.EAGAIN:
		return ErrConflict
	case syscall.ENOSYS, syscall.ENOTSUP:
		return ErrUnsupported
	case syscall.ESRCH, syscall.ECANCELED:
		if after {
			return ErrNotProduced
		}
	}
	return ErrFailed
}
