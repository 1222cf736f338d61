//go:build linux && amd64 && cgo

package txos

// #include "shim.h"
import "C"

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
)

// group is the goroutines that take part in a transaction besides the one that began it.
type group struct {
	fd    C.int
	wait  sync.WaitGroup
	mutex sync.Mutex
	err   error
}

// groups has them by the number that their threads know.
var (
	groups    sync.Map
	lastGroup uint64
)

// Go calls a function in a new goroutine that takes part in the calling goroutine's transaction: it sees and makes
// the same changes, and what it does is published or gone together with them. [Do] returns when all such functions
// have returned. If one returns an error, the transaction is aborted, and Do returns the first such error. One that
// panics ends the program, as in any goroutine; one that leaves its goroutine aborts.
//
// System calls for files are made one at a time, so it does not make them faster. Such a goroutine stays on a thread
// of its own. It may call Go, Do and [Pause].
//
// The error is an *[Error]: [ErrNotInTransaction] on a goroutine that is in none, or why the transaction
// can't go on.
func Go(work func() error) error {
	if err := library(); err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	number, g, err := groupHere()
	if err != nil {
		return err
	}
	g.wait.Add(1)
	go g.run(number, work)
	return nil
}

// groupHere is the group of the thread's transaction, made if there is none.
func groupHere() (uint64, *group, error) {
	if !InTransaction() {
		return 0, nil, &Error{Kind: ErrNotInTransaction, What: "call Go in the function that Do or Go was given, on the same goroutine"}
	}
	if number := uint64(C.txos_go_group()); number != 0 {
		if found, ok := groups.Load(number); ok {
			return number, found.(*group), nil
		}
	}
	number := atomic.AddUint64(&lastGroup, 1)
	fd := C.txos_go_share(C.uint64_t(number))
	if fd < 0 {
		errno := syscall.Errno(-fd)
		if errno == syscall.ECANCELED {
			return 0, nil, lastAbort()
		}
		return 0, nil, &Error{Kind: ErrFailed, What: words("no goroutine can take part: " + errno.Error()), Errno: errno}
	}
	g := &group{fd: fd}
	groups.Store(number, g)
	return number, g, nil
}

func (g *group) run(number uint64, work func() error) {
	defer g.wait.Done()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if failed := C.txos_go_join(g.fd, C.uint64_t(number)); failed != 0 {
		// The transaction is over by now, which the one that began it finds out.
		errno := syscall.Errno(-failed)
		g.fail(&Error{Kind: ErrFailed, What: words("a goroutine could not take part: " + errno.Error()), Errno: errno})
		return
	}
	good := C.int(0)
	defer func() { C.txos_go_leave(good) }()
	left := true
	defer func() {
		if left {
			g.fail(&Error{Kind: ErrAborted, What: "a goroutine that takes part was left by runtime.Goexit"})
		}
	}()
	err := work()
	left = false
	if err != nil {
		g.fail(err)
		return
	}
	good = 1
}

// fail keeps the first error.
func (g *group) fail(err error) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.err == nil {
		g.err = err
	}
}

// waitForOthers waits until all goroutines that take part have returned, and gives their first error.
func waitForOthers() error {
	number := uint64(C.txos_go_group())
	found, ok := groups.Load(number)
	if !ok {
		return nil
	}
	C.txos_go_set_group(0)
	g := found.(*group)
	g.wait.Wait()
	groups.Delete(number)
	C.txos_go_close(g.fd)
	return g.err
}
