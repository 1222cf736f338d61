//go:build linux && amd64 && cgo

package txos_test

import (
	"crypto/rand"
	"errors"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"txos"
)

// What the runtime and the standard library open, or make, when they are first used, and keep.
var firstUses = map[string]func() error{
	"numbers": func() error {
		_, err := rand.Read(make([]byte, 4))
		return err
	},
	"network": func() error {
		server, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer server.Close()
		client, err := net.Dial("tcp", server.Addr().String())
		if err != nil {
			return err
		}
		defer client.Close()
		accepted, err := server.Accept()
		if err != nil {
			return err
		}
		defer accepted.Close()
		if _, err := client.Write([]byte("x")); err != nil {
			return err
		}
		_, err = accepted.Read(make([]byte, 1))
		return err
	},
	"processes": func() error {
		out, err := exec.Command("echo", "text").Output()
		if err == nil && string(out) != "text\n" {
			return errors.New(string(out))
		}
		return err
	},
	"signals": func() error {
		come := make(chan os.Signal, 1)
		signal.Notify(come, syscall.SIGUSR2)
		defer signal.Stop(come)
		if txos.InTransaction() {
			return nil // It would come after the end.
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGUSR2); err != nil {
			return err
		}
		<-come
		return nil
	},
	"threads": func() error {
		come := make(chan error)
		for i := 0; i < 20; i++ {
			go func() {
				time.Sleep(time.Millisecond)
				_, err := os.Stat("/")
				come <- err
			}()
		}
		for i := 0; i < 20; i++ {
			if err := <-come; err != nil {
				return err
			}
		}
		return nil
	},
	"times": func() error {
		zone, err := time.LoadLocation("Asia/Tokyo")
		if err == nil && time.Unix(0, 0).In(zone).Hour() != 9 {
			return errors.New("another time")
		}
		return err
	},
	"users": func() error {
		_, err := user.LookupId("0")
		return err
	},
}

func TestFirstUsesInOneThatAborts(t *testing.T) { useFirst(t, false) }

func TestFirstUsesInOneThatIsLost(t *testing.T) { useFirst(t, true) }

func useFirst(t *testing.T, lost bool) {
	// A process of its own: nothing has been used there.
	if os.Getenv("TXOS_TEST_FIRST") == "" {
		again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		again.Env = append(os.Environ(), "TXOS_TEST_FIRST=1")
		if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	file := filepath.Join(place(t), "file")
	write(t, file, "text")
	no := errors.New("no good")
	for name, use := range firstUses {
		err := txos.Do(background, func() error {
			if lost {
				read(t, file)
				good(t, txos.Pause(func() error {
					good(t, os.WriteFile(file+".new", nil, 0o644))
					return os.Rename(file+".new", file)
				}))
				if _, err := os.ReadFile(file); err == nil {
					t.Error("it has not lost")
				}
			}
			if err := use(); err != nil && !lost {
				t.Errorf("%s: %v", name, err)
			}
			return no
		}, txos.Durable(false), txos.Retries(0))
		if lost != errors.Is(err, txos.ErrConflict) || !errors.Is(err, no) {
			t.Errorf("%s: %v", name, err)
		}
		if err := use(); err != nil {
			t.Errorf("%s, after it: %v", name, err)
		}
	}
}

func TestFilesThatAreLeftOut(t *testing.T) {
	dir := place(t)
	kept, other := filepath.Join(dir, "kept.data"), filepath.Join(dir, "other")
	write(t, kept, "1")
	write(t, other, "1")
	if count, err := txos.LeaveOut(dir, ".data"); count != 1 || err != nil {
		t.Fatal(count, err)
	}
	var left *os.File
	no := errors.New("no good")
	err := txos.Do(background, func() error {
		var err error
		left, err = os.Open(kept)
		good(t, err)
		_, err = txos.LeaveOut(dir, "")
		if why := fails(t, err, txos.ErrFailed); why.Errno != syscall.EBUSY {
			t.Error(why)
		}
		outsider(t, dir, "echo 2 >>kept.data")
		return no
	})
	if err != no {
		t.Error(err)
	}
	// Its descriptor has outlived the abort.
	text := make([]byte, 10)
	if n, err := left.Read(text); string(text[:n]) != "12\n" {
		t.Errorf("%q, %v", text[:n], err)
	}
	left.Close()
	readAndWrite := func(name string) error {
		return txos.Do(background, func() error {
			read(t, filepath.Join(dir, name))
			outsider(t, dir, "echo 3 >>"+name)
			return os.WriteFile(filepath.Join(dir, "made"), nil, 0o644)
		}, txos.Retries(0))
	}
	good(t, readAndWrite("kept.data"))
	fails(t, readAndWrite("other"), txos.ErrConflict)
	_, err = txos.LeaveOut(filepath.Join(dir, "none"), "")
	fails(t, err, txos.ErrFailed)
	_, err = txos.LeaveOut("a\x00b", "")
	fails(t, err, txos.ErrFailed)
}
