package txos

// Flags of sys_xbegin().
const (
	flagDurable    = 0x02
	flagStrict     = 0x04
	flagNonBlock   = 0x10
	flagOrdered    = 0x20
	flagOrderReset = 0x40
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
