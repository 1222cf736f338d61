// Package txos makes system transactions: what a function does to files is published as a whole when
// it returns nil, or has never happened.
//
//	err := txos.Do(ctx, func() error {
//		if err := os.WriteFile("app.conf", []byte("port = 8080\n"), 0o644); err != nil {
//			return err
//		}
//		return os.WriteFile("proxy.conf", []byte("backend = localhost:8080\n"), 0o644)
//	})
//
// The function may use anything: os, io, path/filepath, database drivers, packages with cgo. It is the
// system calls of its thread that are transactional, also those that Go's own runtime makes there, and
// not a set of functions. [Do] keeps the goroutine on its thread meanwhile.
//
// # Goroutines
//
// A transaction belongs to one goroutine. Goroutines that the function starts run on other threads:
// they are outside, see the stable files, and what they do stays. Those that [Go] starts take part:
//
//	err := txos.Do(ctx, func() error {
//		for _, name := range names {
//			name := name
//			if err := txos.Go(func() error { return convert(name) }); err != nil {
//				return err
//			}
//		}
//		return nil
//	})
//
// Don't wait in a transaction for a goroutine that may need what the transaction has changed.
//
// A goroutine in a transaction answers the garbage collector and the scheduler as ever.
//
// # What is not put back
//
// Variables, by an abort or before a retry. An *os.File that was opened in a function that did not commit
// answers EBADF afterwards, and is to be closed like any other; one that was closed in it stays closed.
//
// # Limits
//
// Linux 5.11 or later on x86-64, cgo, and libtxos.so, which is loaded when it is first needed; see
// README.md for where it is looked for. A thread that had a transaction pays about 0.1 µs more for
// each system call afterwards.
package txos
