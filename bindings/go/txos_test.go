//go:build linux && amd64 && cgo

package txos_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"txos"
)

var background = context.Background()

// place is a directory of the test's own, on the file system of the test run.
func place(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(os.Getenv("TXOS_TEST_DIR"), "txos-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Error(err)
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

func names(t testing.TB, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	var all []string
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return strings.Join(all, " ")
}

// outsider runs shell code in another process, and gives what it wrote.
func outsider(t testing.TB, dir, script string) string {
	t.Helper()
	command := exec.Command("sh", "-c", script)
	command.Dir = dir
	out, err := command.Output()
	if err != nil {
		t.Errorf("%s: %v", script, err)
	}
	return string(out)
}

func good(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func fails(t testing.TB, err, kind error) *txos.Error {
	t.Helper()
	var why *txos.Error
	if !errors.Is(err, kind) || !errors.As(err, &why) {
		t.Fatalf("%v is not %v", err, kind)
	}
	return why
}

func TestPublished(t *testing.T) {
	dir := place(t)
	good(t, txos.Do(background, func() error {
		if !txos.InTransaction() {
			t.Error("not in a transaction")
		}
		write(t, filepath.Join(dir, "file"), "new\n")
		good(t, os.Mkdir(filepath.Join(dir, "other"), 0o755))
		if seen := names(t, dir); seen != "file other" {
			t.Error(seen)
		}
		return txos.Pause(func() error {
			if seen := outsider(t, dir, "ls"); seen != "" || txos.InTransaction() {
				t.Error(seen)
			}
			return nil
		})
	}))
	if seen := outsider(t, dir, "cat file; ls"); seen != "new\nfile\nother\n" || txos.InTransaction() {
		t.Error(seen)
	}
}

func TestNotDurable(t *testing.T) {
	file := filepath.Join(place(t), "file")
	good(t, txos.Do(background, func() error { write(t, file, "new"); return nil }, txos.Durable(false)))
	if read(t, file) != "new" {
		t.Error("nothing was published")
	}
}

func TestErrorAborts(t *testing.T) {
	dir, bad := place(t), errors.New("no good")
	err := txos.Do(background, func() error {
		write(t, filepath.Join(dir, "file"), "new")
		good(t, os.Chdir(dir))
		return bad
	})
	if err != bad || names(t, dir) != "" {
		t.Error(err, names(t, dir))
	}
	if now, _ := os.Getwd(); now == dir {
		t.Error("the working directory has changed")
	}
}

func TestPanicAborts(t *testing.T) {
	dir := place(t)
	func() {
		defer func() {
			if recover() != "no good" {
				t.Error("the panic did not go on")
			}
		}()
		_ = txos.Do(background, func() error {
			write(t, filepath.Join(dir, "file"), "new")
			panic("no good")
		})
	}()
	if names(t, dir) != "" || txos.InTransaction() {
		t.Error("something is left")
	}
}

func TestGoexitAborts(t *testing.T) {
	dir := place(t)
	var done sync.WaitGroup
	done.Add(1)
	go func() {
		defer done.Done()
		_ = txos.Do(background, func() error {
			write(t, filepath.Join(dir, "file"), "new")
			runtime.Goexit()
			return nil
		})
	}()
	done.Wait()
	if names(t, dir) != "" {
		t.Error("something is left")
	}
}

func TestNested(t *testing.T) {
	dir := place(t)
	file := filepath.Join(dir, "file")
	good(t, txos.Do(background, func() error {
		good(t, txos.Do(background, func() error { write(t, file, "new"); return nil }))
		return txos.Pause(func() error {
			if names(t, dir) != "" {
				t.Error("the inner one was published")
			}
			return nil
		})
	}))
	if read(t, file) != "new" {
		t.Error("nothing was published")
	}
	for _, inner := range []func() error{
		func() error { return errors.New("no good") },
		func() error { panic("no good") },
	} {
		err := txos.Do(background, func() error {
			write(t, filepath.Join(dir, "outer"), "")
			func() {
				defer func() { _ = recover() }()
				_ = txos.Do(background, inner)
			}()
			// A pause does not make it forget.
			return txos.Pause(func() error { return nil })
		})
		fails(t, err, txos.ErrAborted)
		if names(t, dir) != "file" {
			t.Error(names(t, dir))
		}
	}
}

func TestPause(t *testing.T) {
	dir, bad := place(t), errors.New("no good")
	err := txos.Do(background, func() error {
		write(t, filepath.Join(dir, "file"), "new")
		good(t, txos.Pause(func() error {
			return txos.Do(background, func() error { write(t, filepath.Join(dir, "log"), "tried"); return nil })
		}))
		if read(t, filepath.Join(dir, "file")) != "new" {
			t.Error("it does not go on")
		}
		return bad
	})
	if err != bad || names(t, dir) != "log" {
		t.Error(err, names(t, dir))
	}
	fails(t, txos.Pause(func() error { return nil }), txos.ErrNotInTransaction)
}

func TestOtherGoroutinesAreOutside(t *testing.T) {
	dir := place(t)
	good(t, txos.Do(background, func() error {
		write(t, filepath.Join(dir, "inside"), "")
		answer := make(chan error)
		go func() {
			if txos.InTransaction() || names(t, dir) != "" {
				t.Error("the goroutine is inside")
			}
			write(t, filepath.Join(dir, "outside"), "")
			answer <- txos.Pause(func() error { return nil })
		}()
		fails(t, <-answer, txos.ErrNotInTransaction)
		return nil
	}))
	if names(t, dir) != "inside outside" {
		t.Error(names(t, dir))
	}
}

// lose reads the file, lets an outsider change it, and depends on what was read.
func lose(t testing.TB, dir string) {
	text := read(t, filepath.Join(dir, "file"))
	good(t, txos.Pause(func() error { outsider(t, dir, "echo outsider >>file"); return nil }))
	_ = os.WriteFile(filepath.Join(dir, "copy"), []byte(text), 0o644)
}

func TestConflict(t *testing.T) {
	dir := place(t)
	file := filepath.Join(dir, "file")
	write(t, file, "old\n")
	why := fails(t, txos.Do(background, func() error { lose(t, dir); return nil }, txos.Retries(0)), txos.ErrConflict)
	if why.Path != file || !strings.Contains(why.Error(), file) || why.Errno != syscall.ECANCELED {
		t.Errorf("%+v", why)
	}
	if seen := outsider(t, dir, "cat file; ls"); seen != "old\noutsider\nfile\n" {
		t.Error(seen)
	}
	// It takes the place of what the function made of it.
	bad := errors.New("a consequence")
	why = fails(t, txos.Do(background, func() error {
		_, err := os.Stat(file)
		good(t, err)
		good(t, txos.Pause(func() error { outsider(t, dir, "echo outsider >>file"); return nil }))
		if _, err = os.ReadFile(file); !errors.Is(err, syscall.ECANCELED) {
			t.Error(err)
		}
		return bad
	}, txos.Retries(0)), txos.ErrConflict)
	if !errors.Is(why, bad) {
		t.Error(why)
	}
}

func TestRetries(t *testing.T) {
	dir := place(t)
	write(t, filepath.Join(dir, "file"), "old\n")
	tries := 0
	good(t, txos.Do(background, func() error {
		if tries++; tries < 3 {
			lose(t, dir)
		}
		return nil
	}))
	if tries != 3 {
		t.Error(tries)
	}
	tries = 0
	fails(t, txos.Do(background, func() error { tries++; lose(t, dir); return nil }, txos.Retries(2)), txos.ErrConflict)
	if tries != 3 {
		t.Error(tries)
	}
}

func TestContext(t *testing.T) {
	dir := place(t)
	file := filepath.Join(dir, "file")
	ctx, cancel := context.WithCancel(background)
	calls := 0
	why := fails(t, txos.Do(ctx, func() error {
		write(t, file, "new")
		cancel()
		// The watcher runs some time: until then calls go on.
		for {
			calls++
			if _, err := os.Stat(file); err != nil {
				return err
			}
		}
	}), txos.ErrAborted)
	if !errors.Is(why, context.Canceled) || names(t, dir) != "" || calls == 0 {
		t.Error(why, names(t, dir))
	}
	// One that is done already begins nothing.
	if err := txos.Do(ctx, func() error { t.Error("called"); return nil }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// The end is a call as well.
	ctx, cancel = context.WithCancel(background)
	err := txos.Do(ctx, func() error { write(t, file, "new"); cancel(); return nil })
	if !errors.Is(err, context.Canceled) || names(t, dir) != "" {
		t.Error(err)
	}
	// And an endless retry ends.
	ctx, cancel = context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	write(t, file, "old")
	err = txos.Do(ctx, func() error {
		// The time may be over at any of them.
		text, err := os.ReadFile(file)
		if err == nil {
			err = txos.Pause(func() error { outsider(t, dir, "echo outsider >>file"); return nil })
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "copy"), text, 0o644)
		}
		return err
	}, txos.Retries(-1))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestContextEndsAWait(t *testing.T) {
	dir := place(t)
	file := filepath.Join(dir, "file")
	write(t, file, "old")
	good(t, txos.Do(background, func() error {
		write(t, file, "mine")
		var answer atomic.Pointer[error]
		go func() {
			ctx, cancel := context.WithTimeout(background, 100*time.Millisecond)
			defer cancel()
			err := txos.Do(ctx, func() error { return os.WriteFile(file, []byte("other"), 0o644) })
			answer.Store(&err)
		}()
		// One that waited would give way.
		for answer.Load() == nil {
			runtime.Gosched()
		}
		if err := *answer.Load(); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		return nil
	}))
	if read(t, file) != "mine" {
		t.Error(read(t, file))
	}
}

func TestNonBlock(t *testing.T) {
	file := filepath.Join(place(t), "file")
	write(t, file, "old")
	good(t, txos.Do(background, func() error {
		write(t, file, "mine")
		return txos.Pause(func() error {
			err := txos.Do(background, func() error { return os.WriteFile(file, []byte("other"), 0o644) },
				txos.NonBlock(true), txos.Retries(0))
			if why := fails(t, err, txos.ErrConflict); why.PID != os.Getpid() {
				t.Errorf("%+v", why)
			}
			return nil
		})
	}))
	if read(t, file) != "mine" {
		t.Error("it was changed")
	}
}

func TestStrict(t *testing.T) {
	dir := place(t)
	outside := func() error {
		write(t, filepath.Join(dir, "file"), "new")
		parent := os.Getppid()
		known, err := syscall.Getpriority(syscall.PRIO_PROCESS, parent)
		if err != nil {
			return err
		}
		// The system call gives 20 less the priority.
		return syscall.Setpriority(syscall.PRIO_PROCESS, parent, 20-known)
	}
	why := fails(t, txos.Do(background, outside, txos.Strict(true)), txos.ErrUnsupported)
	if !strings.Contains(why.What, "priority") || names(t, dir) != "" {
		t.Error(why, names(t, dir))
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, _ := txos.ReadStats()
	good(t, txos.Do(background, outside))
	after, err := txos.ReadStats()
	good(t, err)
	if after.Unsupported != before.Unsupported+1 || after.Committed != before.Committed+1 || after.Trapped == before.Trapped {
		t.Errorf("%+v %+v", before, after)
	}
}

func TestOrdered(t *testing.T) {
	file := filepath.Join(place(t), "file")
	write(t, file, "")
	first := uint64(1000)
	good(t, txos.Do(background, func() error { write(t, file, "1"); return nil }, txos.OrderedFrom(first)))
	var done sync.WaitGroup
	// The later one comes first, and waits for the other.
	begun := make(chan struct{})
	var once sync.Once
	for i, wait := range []chan struct{}{nil, begun} {
		done.Add(1)
		go func(sequence uint64, wait chan struct{}) {
			defer done.Done()
			if wait != nil {
				<-wait
			}
			err := txos.Do(background, func() error {
				if wait == nil {
					once.Do(func() { close(begun) })
				}
				out, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
				if err != nil {
					return err
				}
				defer out.Close()
				_, err = fmt.Fprint(out, sequence-first+1)
				return err
			}, txos.Ordered(sequence), txos.Retries(-1))
			if err != nil {
				t.Error(err)
			}
		}(first+2-uint64(i), wait)
	}
	done.Wait()
	if text := read(t, file); text != "123" {
		t.Error(text)
	}
}

func TestNames(t *testing.T) {
	nothing := func() error { return nil }
	never := func() error { t.Error("it was begun"); return nil }
	long := strings.Repeat("é", 128)
	for _, option := range []txos.Option{
		txos.Name(""), txos.Name("a\nb"), txos.Name(long), txos.Name("\xff"), txos.After("a", ""),
	} {
		if why := fails(t, txos.Do(background, never, option), txos.ErrFailed); why.Errno != syscall.EINVAL {
			t.Error(why)
		}
	}
	fails(t, txos.Do(background, never, txos.After("a"), txos.Ordered(1)), txos.ErrFailed)
	good(t, txos.Do(background, func() error {
		fails(t, txos.Do(background, never, txos.Name("a")), txos.ErrFailed)
		fails(t, txos.Do(background, never, txos.After("a")), txos.ErrFailed)
		return nil
	}))
	// A name is of one transaction.
	good(t, txos.Do(background, nothing, txos.Name("p"), txos.After()))
	for _, options := range [][]txos.Option{{txos.After("p")}, {txos.After("p"), txos.Name("p")}} {
		if why := fails(t, txos.Do(background, never, options...), txos.ErrNotProduced); why.Errno != syscall.ESRCH {
			t.Error(why)
		}
	}
}

func TestAgain(t *testing.T) {
	file := filepath.Join(place(t), "file")
	calls := 0
	good(t, txos.Do(background, func() error {
		calls++
		write(t, file, fmt.Sprint(calls))
		if calls < 3 {
			return fmt.Errorf("too early: %w", txos.ErrAgain)
		}
		return nil
	}))
	if read(t, file) != "3" {
		t.Error(read(t, file))
	}
	err := txos.Do(background, func() error { return txos.ErrAgain }, txos.Retries(1))
	fails(t, err, txos.ErrConflict)
	if !errors.Is(err, txos.ErrAgain) {
		t.Error(err)
	}
}

func TestFilesLiveOn(t *testing.T) {
	dir := place(t)
	var file *os.File
	good(t, txos.Do(background, func() (err error) {
		if file, err = os.Create(filepath.Join(dir, "file")); err == nil {
			_, err = file.WriteString("in ")
		}
		return err
	}))
	defer file.Close()
	_, err := file.WriteString("after")
	good(t, err)
	if read(t, file.Name()) != "in after" {
		t.Error(read(t, file.Name()))
	}
}

// A file that is left over after an abort leads nowhere, and closes no other one that has its number by then.
func TestFilesThatAreLeftOver(t *testing.T) {
	dir, bad := place(t), errors.New("no good")
	var left *os.File
	err := txos.Do(background, func() (err error) {
		if left, err = os.Create(filepath.Join(dir, "file")); err != nil {
			return err
		}
		return bad
	})
	if err != bad {
		t.Fatal(err)
	}
	other, err := os.Create(filepath.Join(dir, "other"))
	good(t, err)
	defer other.Close()
	if _, err = left.WriteString("text"); !errors.Is(err, syscall.EBADF) {
		t.Error(err)
	}
	good(t, left.Close())
	if _, err = other.WriteString("text"); err != nil || names(t, dir) != "other" {
		t.Error(err, names(t, dir))
	}
}

// The whole of os and io that works with files, inside; the same as outside.
func TestLibraryCalls(t *testing.T) {
	work := func(dir string) error {
		in := func(name string) string { return filepath.Join(dir, name) }
		write(t, in("a"), strings.Repeat("a", 100_000))
		source, err := os.Open(in("a"))
		if err != nil {
			return err
		}
		defer source.Close()
		copied, err := os.Create(in("b"))
		if err != nil {
			return err
		}
		defer copied.Close()
		if _, err = io.Copy(copied, source); err != nil { // copy_file_range
			return err
		}
		if err = os.MkdirAll(in("d/e/f"), 0o755); err != nil {
			return err
		}
		if err = os.Rename(in("b"), in("d/e/f/c")); err != nil {
			return err
		}
		if err = os.Symlink("a", in("s")); err != nil {
			return err
		}
		if err = os.Chmod(in("a"), 0o600); err != nil {
			return err
		}
		if err = os.Truncate(in("a"), 7); err != nil {
			return err
		}
		if err = os.Chtimes(in("a"), time.Unix(1, 0), time.Unix(2, 0)); err != nil {
			return err
		}
		temporary, err := os.CreateTemp(dir, "t-")
		if err != nil {
			return err
		}
		if err = temporary.Close(); err == nil {
			err = os.Remove(temporary.Name())
		}
		if err != nil {
			return err
		}
		if err = os.MkdirAll(in("gone/gone"), 0o755); err == nil {
			err = os.RemoveAll(in("gone"))
		}
		return err
	}
	show := func(dir string) string {
		return outsider(t, dir, "find . -printf '%p %y %m %l ' -type f -printf '%s' -printf '\n' | sort; stat -c %Y a; cat a d/e/f/c | cksum")
	}
	plain, inside := place(t), place(t)
	good(t, work(plain))
	good(t, txos.Do(background, func() error { return work(inside) }))
	if show(plain) != show(inside) {
		t.Errorf("%s\n%s", show(plain), show(inside))
	}
}

func TestChildrenAreOutside(t *testing.T) {
	dir := place(t)
	good(t, txos.Do(background, func() error {
		write(t, filepath.Join(dir, "inside"), "")
		if seen := outsider(t, dir, "ls; echo new >outside"); seen != "" {
			t.Error(seen)
		}
		return nil
	}))
	if names(t, dir) != "inside outside" {
		t.Error(names(t, dir))
	}
}

// A goroutine that makes no calls at all is stopped by a signal: without it the collector would wait for
// the end of the transaction, which waits for the collector.
func TestCollectorStopsALoop(t *testing.T) {
	file := filepath.Join(place(t), "file")
	var collected int32
	good(t, txos.Do(background, func() error {
		write(t, file, "new")
		go func() {
			runtime.GC()
			atomic.StoreInt32(&collected, 1)
		}()
		for atomic.LoadInt32(&collected) == 0 {
		}
		return nil
	}))
	if read(t, file) != "new" {
		t.Error("nothing was published")
	}
}

func deep(t *testing.T, dir string, depth int) int {
	var room [1000]byte
	if depth == 0 {
		return len(names(t, dir))
	}
	room[depth%len(room)] = 1
	return deep(t, dir, depth-1) + int(room[depth%len(room)]) - 1
}

func TestStacksGrow(t *testing.T) {
	dir := place(t)
	good(t, txos.Do(background, func() error {
		write(t, filepath.Join(dir, "file"), "new")
		if deep(t, dir, 20_000) != len("file") {
			t.Error("the stack is not what it was")
		}
		return nil
	}))
}
