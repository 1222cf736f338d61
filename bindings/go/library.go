//go:build linux && amd64 && cgo

package txos

// #cgo CFLAGS: -O2
// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"
)

const libraryName = "libtxos.so"

var (
	loading sync.Once
	loadErr *Error
)

// library loads libtxos.so when it is first needed.
func library() *Error {
	loading.Do(func() { loadErr = load() })
	return loadErr
}

func load() *Error {
	if err := startPoller(); err != nil {
		return &Error{Kind: ErrLibrary, What: "Go's runtime could not start its poller: " + err.Error(), Err: err}
	}
	if why, code := open(libraryName, true); code != 1 {
		return tooOld(why, code)
	}
	var tried []string
	for _, path := range candidates(os.Getenv("TXOS_LIB")) {
		why, code := open(path, false)
		if code != 1 {
			return tooOld(why, code)
		}
		tried = append(tried, why)
	}
	return &Error{Kind: ErrLibrary, What: libraryName + " was not found: install txos, or set TXOS_LIB to " +
		"the file. Tried: " + strings.Join(tried, "; ")}
}

// startPoller has Go's runtime open the descriptors of its poller now. It does so when a program first
// opens a file. In a transaction they would be that transaction's: an abort would close them, and the
// runtime ends a program whose poller fails.
func startPoller() error {
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	reader.Close()
	writer.Close()
	return nil
}

func tooOld(why string, code int) *Error {
	if code == 0 {
		return nil
	}
	return &Error{Kind: ErrLibrary, What: why + ": it is older than this package; install both from the same release"}
}

func open(path string, already bool) (string, int) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var why [1024]C.char
	loaded := C.int(0)
	if already {
		loaded = 1
	}
	code := C.txos_go_load(name, loaded, &why[0], C.size_t(len(why)))
	return C.GoString(&why[0]), int(code)
}

// candidates are the places where the library may be, besides in this process.
func candidates(named string) []string {
	if named != "" {
		return []string{named}
	}
	places := []string{libraryName, "/usr/local/lib/txos/" + libraryName, "/usr/lib/txos/" + libraryName}
	if own, err := os.Executable(); err == nil {
		dir := filepath.Dir(own)
		places = append(places, filepath.Join(dir, libraryName), filepath.Join(filepath.Dir(dir), libraryName))
	}
	return places
}
