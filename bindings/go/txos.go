//go:build linux && amd64 && cgo

package txos

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Pauses between attempts: random, so that those who met don't meet again, and longer each time.
const (
	backoffFirst = time.Millisecond
	backoffMax   = 64 * time.Millisecond
)

// Do calls a function as a transaction of the calling goroutine. If it returns nil, what it did to
// files is published as a whole. If it returns an error, panics or leaves the goroutine, nothing of it
// has happened, and the error or the panic goes on to the caller. After a conflict the function is
// called again ([Retries]); what it did to variables is not put back.
//
// When the context is done, the transaction's next system call for a file fails with ECANCELED, and Do
// returns an [ErrAborted] that wraps the context's error. A function that makes no calls is not
// interrupted.
//
// Within a transaction of the same goroutine the function is part of that, with that one's settings
// and context. If it fails there, the outer one can't commit any more, and returns ErrAborted if it
// tries to. It can't have a name or come after others of its own: then Do returns [ErrFailed], and the function is not called.
//
// The error is the function's own, or an *[Error].
func Do(ctx context.Context, work func() error, options ...Option) error {
	if err := library(); err != nil {
		return err
	}
	settings := settingsOf(options)
	if err := settings.check(); err != nil {
		return err
	}
	if settings.known() {
		// What is known of it between two attempts is the thread's.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		leave, err := settings.enter()
		if err != nil {
			return err
		}
		defer leave()
	}
	for attempt := 0; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return called(err)
		}
		err, lost := once(ctx, work, &settings)
		if !lost || settings.retries >= 0 && attempt >= settings.retries {
			return err
		}
		if !pauseBetween(ctx, attempt) {
			return called(ctx.Err())
		}
	}
}

// enter gives the thread's next transaction, in all of its attempts, its name, or none. What it returns says that there is no
// further attempt: if it has not committed, it has failed for what comes after it.
func (s *settings) enter() (leave func(), err *Error) {
	if C.txos_go_here() != C.TXOS_GO_OUTSIDE {
		return nil, &Error{Kind: ErrFailed, Errno: syscall.EINVAL, What: "a transaction within another one is part of that: " +
			"it has no name, and comes after nothing, of its own"}
	}
	var name *C.char
	if s.named {
		name = C.CString(s.name)
		defer C.free(unsafe.Pointer(name))
	}
	if failed := C.txos_go_name(name); failed != 0 {
		errno := syscall.Errno(-failed)
		return nil, &Error{Kind: ErrFailed, What: "a transaction could not be given its name: " + errno.Error(), Errno: errno}
	}
	return func() { C.txos_go_name(nil) }, nil
}

func called(err error) *Error {
	return &Error{Kind: ErrAborted, What: "the context is done: " + err.Error(), Errno: syscall.ECANCELED, Err: err}
}

// once is one attempt; it reports whether the transaction lost a conflict.
func once(ctx context.Context, work func() error, settings *settings) (err error, lost bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// What calls the transaction off. The library looks at it, so it is not Go's memory.
	var flag *C.int
	if ctx.Done() != nil {
		flag = (*C.int)(C.calloc(1, C.size_t(unsafe.Sizeof(*flag))))
		defer C.free(unsafe.Pointer(flag))
	}
	var after *C.char
	if len(settings.after) > 0 {
		after = C.CString(strings.Join(settings.after, "\n"))
		defer C.free(unsafe.Pointer(after))
	}
	switch begun := C.txos_go_begin(C.int(settings.flags), C.uint64_t(settings.sequence), after, flag); {
	case begun == C.TXOS_GO_WITHIN:
		return within(work), false
	case begun < 0:
		errno := syscall.Errno(-begun)
		err := &Error{Kind: kindOfBegin(errno, after != nil), What: words("a transaction could not be begun: " + errno.Error()), Errno: errno}
		return err, err.Kind == ErrConflict
	}
	returned := false
	defer func() {
		// A panic goes on, and so does runtime.Goexit.
		if !returned {
			C.txos_go_end(0)
			waitForOthers()
		}
	}()
	unwatch := watch(ctx, flag)
	defer unwatch()
	err = work()
	returned = true
	return ended(ctx, err)
}

// within is a transaction within that of the goroutine.
func within(work func() error) error {
	good := false
	defer func() {
		if !good {
			C.txos_go_spoil()
		}
	}()
	err := work()
	good = err == nil
	return err
}

// watch sets the flag when the context is done; what it returns ends that.
func watch(ctx context.Context, flag *C.int) func() {
	if flag == nil {
		return func() {}
	}
	over, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case <-ctx.Done():
			atomic.StoreInt32((*int32)(unsafe.Pointer(flag)), 1)
		case <-over:
		}
	}()
	return func() {
		close(over)
		<-gone
	}
}

// ended ends the transaction of a function that has returned.
func ended(ctx context.Context, returned error) (err error, lost bool) {
	commit := C.int(0)
	if returned == nil && ctx.Err() == nil {
		commit = 1
	}
	became := C.txos_go_end(commit)
	if became == C.TXOS_GO_OTHERS {
		if returned = waitForOthers(); returned != nil || ctx.Err() != nil {
			commit = 0
		}
		became = C.txos_go_end(commit)
	} else if commit == 0 {
		waitForOthers()
	}
	switch became {
	case C.TXOS_GO_DONE:
		return nil, false
	case C.TXOS_GO_GONE:
		if returned != nil {
			return returned, false
		}
		return &Error{Kind: ErrFailed, What: "nothing was committed: at the end of the function there was no transaction " +
			"any more: other code has ended it"}, false
	}
	why := lastAbort()
	why.Err = returned
	if why.Kind != ErrAborted {
		// It had failed before: the error is only what the function made of that.
		return why, why.Kind == ErrConflict
	}
	if done := ctx.Err(); done != nil {
		return called(done), false
	}
	if errors.Is(returned, ErrAgain) {
		return &Error{Kind: ErrConflict, What: "the function asked to be called again: " + returned.Error(), Err: returned}, true
	}
	if returned != nil {
		return returned, false
	}
	if became == C.TXOS_GO_WAS_SPOILED {
		why.What = "a transaction within this one failed, and its error was not passed on"
	}
	return why, false
}

// pauseBetween waits before the next attempt; false if the context is done.
func pauseBetween(ctx context.Context, attempt int) bool {
	limit := backoffMax
	if attempt < 6 {
		limit = backoffFirst << attempt
	}
	// The low digits of the time, spread: nothing depends on how random they are.
	spread := uint64(time.Now().UnixNano()) * 0x9e3779b97f4a7c15 >> 16
	timer := time.NewTimer(time.Duration(spread % uint64(limit)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Pause leaves the calling goroutine's transaction while a function runs: what that does is not part of
// the transaction, stays, and sees nothing of it. It may be a transaction of its own. Files that the
// transaction opened are not to be used in it.
//
// The error is the function's own, or an *[Error]: [ErrNotInTransaction] on a goroutine that is in none.
func Pause(work func() error) (err error) {
	if err := library(); err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	id := C.txos_go_pause()
	if id == 0 {
		return &Error{Kind: ErrNotInTransaction, What: "call Pause in the function that Do was given, on the same goroutine"}
	}
	if id < 0 {
		errno := syscall.Errno(-id)
		return &Error{Kind: ErrFailed, What: words("the transaction can't be paused: " + errno.Error()), Errno: errno}
	}
	group := C.txos_go_group()
	defer func() {
		if C.txos_go_resume(id) != 0 && err == nil {
			err = &Error{Kind: ErrFailed, What: words("the transaction can't go on")}
		}
		C.txos_go_set_group(group)
	}()
	return work()
}

// LeaveOut leaves a file out of the transactions of this process as long as it is only read; of a directory, all files
// below it whose names end with suffix. It returns how many files that were. Such a file causes no conflict, is not
// waited for, and an abort does not close it: it is for what a program opens late and keeps, such as plug-ins. A file is
// known by its device and inode as it is now: one that takes its place is part of transactions.
//
// The error is an *[Error]: [ErrFailed] with EBUSY in a transaction, or if the path can't be read.
func LeaveOut(path, suffix string) (int, error) {
	if err := library(); err != nil {
		return 0, err
	}
	full, err := filepath.Abs(path)
	if err == nil && strings.Contains(full+suffix, "\x00") {
		err = syscall.EINVAL
	}
	if err != nil {
		return 0, &Error{Kind: ErrFailed, What: "can't be left out of transactions: " + err.Error(), Path: path, Err: err}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	file, end := C.CString(full), C.CString(suffix)
	defer C.free(unsafe.Pointer(file))
	defer C.free(unsafe.Pointer(end))
	count := C.txos_go_exclude(file, end)
	if count < 0 {
		errno := syscall.Errno(-count)
		return 0, &Error{Kind: ErrFailed, What: "can't be left out of transactions: " + errno.Error(), Path: path, Errno: errno}
	}
	return int(count), nil
}

// InTransaction reports whether the calling goroutine is in a transaction, and has not paused it.
func InTransaction() bool {
	return library() == nil && C.txos_go_inside() != 0
}

// Stats are counters of one thread since it started.
type Stats struct {
	// Begun are transactions, retries included.
	Begun uint64
	// Committed are those that were published, Aborted those that did not happen.
	Committed, Aborted uint64
	// Calls are system calls made within transactions; Trapped those of them that came by Syscall User
	// Dispatch, which are all that Go makes itself.
	Calls, Trapped uint64
	// Unsupported are calls that passed through with a warning.
	Unsupported uint64
	// ShortCuts are commits of one call, or without changes.
	ShortCuts uint64
}

// ReadStats gives the counters of the thread that the calling goroutine runs on. Differences mean
// something only on one thread: in a transaction, or between runtime.LockOSThread and
// runtime.UnlockOSThread.
func ReadStats() (Stats, error) {
	if err := library(); err != nil {
		return Stats{}, err
	}
	var c C.struct_txos_go_stats
	C.txos_go_stats(&c)
	n := func(i int) uint64 { return uint64(c.counters[i]) }
	return Stats{Begun: n(0), Committed: n(1), Aborted: n(2), Calls: n(4), Trapped: n(5), Unsupported: n(6), ShortCuts: n(7)}, nil
}

// LibraryVersion is the version of the libtxos.so that was found, for example "0.1.0".
func LibraryVersion() (string, error) {
	if err := library(); err != nil {
		return "", err
	}
	return C.GoString(C.txos_go_version()), nil
}

// lastAbort is why the thread's last transaction was aborted.
func lastAbort() *Error {
	var abort C.struct_txos_go_abort
	C.txos_go_abort_reason(&abort)
	what := C.GoString(&abort.what[0])
	if what == "" {
		what = "the transaction was aborted"
	}
	return &Error{
		Kind:  kindOfAbort(uint32(abort.reason)),
		What:  what,
		Path:  C.GoString(&abort.path[0]),
		Errno: syscall.Errno(abort.error),
		PID:   int(abort.pid),
	}
}

// words is what the thread's last failure was, or other words.
func words(otherwise string) string {
	if said := C.GoString(C.txos_go_words()); said != "no error" {
		return said
	}
	return otherwise
}
