package txos

import (
	"fmt"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"
)

// Flags of sys_xbegin().
const (
	flagDurable    = 0x02
	flagStrict     = 0x04
	flagNonBlock   = 0x10
	flagOrdered    = 0x20
	flagOrderReset = 0x40
	flagAfter      = 0x400
	// A transaction that is not committed keeps its name, and what it comes after, for the next attempt.
	flagRetry = 0x1000
	// The number of a file that an abort closes stays taken until its *os.File is closed.
	flagManaged = 0x100
)

// defaultRetries is how often a transaction is tried again after a conflict.
const defaultRetries = 10

// Option changes how [Do] makes a transaction.
type Option func(*settings)

type settings struct {
	flags    int
	sequence uint64
	retries  int
	name     string
	after    []string
	// A name was given, be it empty.
	named bool
}

// known reports whether the transaction has a place among those that come after each other.
func (s *settings) known() bool { return s.named || len(s.after) > 0 }

// check finds what can't be.
func (s *settings) check() *Error {
	invalid := func(what string) *Error { return &Error{Kind: ErrFailed, What: what, Errno: syscall.EINVAL} }
	if len(s.after) > 0 && s.flags&flagOrdered != 0 {
		return invalid("a transaction comes after others, or in the order of a number")
	}
	names := s.after
	if s.named {
		names = append([]string{s.name}, names...)
	}
	for _, name := range names {
		// As the library does.
		if name == "" || len(name) > 255 || !utf8.ValidString(name) || strings.IndexFunc(name, unicode.IsControl) >= 0 {
			return invalid(fmt.Sprintf("a name is UTF-8, has 1 to 255 bytes, and no control characters: %q", name))
		}
	}
	return nil
}

func (s *settings) set(flag int, on bool) {
	if on {
		s.flags |= flag
	} else {
		s.flags &^= flag
	}
}

func settingsOf(options []Option) settings {
	s := settings{flags: flagDurable | flagManaged, retries: defaultRetries}
	for _, option := range options {
		option(&s)
	}
	return s
}

// Durable says whether the changes survive a power cut once [Do] has returned nil. The default: yes,
// which is a flush, some milliseconds on most disks.
func Durable(durable bool) Option { return func(s *settings) { s.set(flagDurable, durable) } }

// Strict says whether a call that can't be part of a transaction aborts it, with [ErrUnsupported]. The
// default: no, it is made at once, with one warning on standard error.
func Strict(strict bool) Option { return func(s *settings) { s.set(flagStrict, strict) } }

// NonBlock says whether another transaction in the way is a conflict at once. The default: no, it is
// waited for, 60 s at most.
func NonBlock(nonblock bool) Option { return func(s *settings) { s.set(flagNonBlock, nonblock) } }

// Retries is how often the function is called again after a conflict; less than 0: until there is no
// conflict or the context is done. The default: 10.
func Retries(times int) Option { return func(s *settings) { s.retries = times } }

// Ordered has the transaction commit in the order of this number: after those of its process group with
// lower ones.
func Ordered(sequence uint64) Option {
	return func(s *settings) {
		s.set(flagOrdered, true)
		s.sequence = sequence
	}
}

// OrderedFrom begins the sequence of the process group at this number, which is the transaction's own.
func OrderedFrom(sequence uint64) Option {
	return func(s *settings) {
		s.set(flagOrdered|flagOrderReset, true)
		s.sequence = sequence
	}
}

// Name gives the transaction a name, by which others can come after it through all of its attempts: programs with
// [After], commands with txos run --after. It has 255 bytes at the most, and no control characters. The default: none.
func Name(name string) Option {
	return func(s *settings) {
		s.set(flagRetry, true)
		s.name, s.named = name, true
	}
}

// After has the transaction come after others that run already: transactions with these names, and commands with these
// names or ids. The function is called at once. Where it looks at what they have changed, it waits for their end, and it
// commits after them. If it has looked before, that is a conflict, and it is called again when they have ended; so it is
// when it returns [ErrAgain]. If one of them does not commit, Do returns [ErrNotProduced]; so it does at once if there is
// nothing of a name, with the Errno ESRCH.
func After(names ...string) Option {
	return func(s *settings) {
		if s.after = append(s.after, names...); len(s.after) > 0 {
			s.set(flagAfter|flagRetry, true)
		}
	}
}
