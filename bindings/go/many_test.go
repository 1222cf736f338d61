//go:build linux && amd64 && cgo

package txos_test

import (
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"

	"txos"
)

func isLong() bool {
	for _, mode := range strings.Split(os.Getenv("TXOS_TEST_LONG"), ",") {
		if mode == "bindings" || mode == "all" {
			return true
		}
	}
	return false
}

const accounts = 8

func number(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

func setNumber(path string, value int) error {
	return os.WriteFile(path, []byte(strconv.Itoa(value)), 0o644)
}

// transfer moves a sum between two accounts, and looks at the total now and then. Some are aborted.
func transfer(dir string, random *rand.Rand) error {
	account := func() string { return filepath.Join(dir, fmt.Sprint("account", random.Intn(accounts))) }
	from, to, sum, how := account(), account(), random.Intn(10), random.Intn(20)
	err := txos.Do(background, func() error {
		if how == 0 {
			total := 0
			for i := 0; i < accounts; i++ {
				balance, err := number(filepath.Join(dir, fmt.Sprint("account", i)))
				if err != nil {
					return err
				}
				total += balance
			}
			if total != 100*accounts {
				return fmt.Errorf("a transaction sees a total of %d", total)
			}
			return nil
		}
		balance, err := number(from)
		if err != nil {
			return err
		}
		if err = setNumber(from, balance-sum); err != nil {
			return err
		}
		// Garbage, and a switch of threads for the others.
		_ = make([]byte, 10_000)
		runtime.Gosched()
		credit := func() error {
			balance, err := number(to)
			if err != nil {
				return err
			}
			return setNumber(to, balance+sum)
		}
		if how%4 == 2 {
			// By a goroutine that takes part.
			return txos.Go(credit)
		}
		if err = credit(); err != nil {
			return err
		}
		if how == 1 {
			return errRefused
		}
		return nil
	}, txos.Durable(false), txos.Retries(-1))
	if err == errRefused {
		return nil
	}
	return err
}

var errRefused = fmt.Errorf("refused")

// Many goroutines that want the same files, while the collector runs all the time.
func TestManyUnderPressure(t *testing.T) {
	goroutines, each := 8, 40
	if isLong() {
		each = 1250 // 10,000 in all
	}
	dir := place(t)
	for i := 0; i < accounts; i++ {
		good(t, setNumber(filepath.Join(dir, fmt.Sprint("account", i)), 100))
	}
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	var workers sync.WaitGroup
	for i := 0; i < goroutines; i++ {
		workers.Add(1)
		go func(seed int64) {
			defer workers.Done()
			random := rand.New(rand.NewSource(seed))
			for n := 0; n < each; n++ {
				if err := transfer(dir, random); err != nil {
					t.Error(err)
					return
				}
				if n%20 == 0 {
					debug.FreeOSMemory()
				}
			}
		}(int64(i))
	}
	workers.Wait()
	total := 0
	for i := 0; i < accounts; i++ {
		balance, err := number(filepath.Join(dir, fmt.Sprint("account", i)))
		good(t, err)
		total += balance
	}
	if total != 100*accounts {
		t.Errorf("the total is %d", total)
	}
	if left := len(strings.Fields(names(t, dir))); left != accounts {
		t.Errorf("%d files are left", left)
	}
}
