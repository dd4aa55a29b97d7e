package sink

import "sync"

// post is a run of events from the loop.
type post struct {
	session *Session
	entries []entry
}

// mailbox is how other goroutines reach the pump: they append under a small
// lock that nobody holds while doing anything else, and signal. What bounds
// it: events by the relay's span, chunks by the lanes, calls by their callers,
// who each have at most one under way.
type mailbox struct {
	mu      sync.Mutex // guards the following
	calls   []func()
	posts   []post
	done    []*chunk
	buffers [][]entry // emptied post buffers, for reuse

	wake chan struct{} // capacity 1: a signal that is pending covers all that came before it is read
}

func newMailbox() *mailbox { return &mailbox{wake: make(chan struct{}, 1)} }

func (m *mailbox) signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// call makes the pump run f.
func (m *mailbox) call(f func()) {
	m.mu.Lock()
	m.calls = append(m.calls, f)
	m.mu.Unlock()
	m.signal()
}

// decided gives the pump a chunk whose every promise was called.
func (m *mailbox) decided(c *chunk) {
	m.mu.Lock()
	m.done = append(m.done, c)
	m.mu.Unlock()
	m.signal()
}

// postEntries is how many events the loop gathers before it posts them by
// itself. guess: large enough to make the lock cheap, small against a chunk.
const postEntries = 256

// send posts events and returns an empty buffer for the next ones.
func (m *mailbox) send(s *Session, entries []entry) []entry {
	m.mu.Lock()
	m.posts = append(m.posts, post{s, entries})
	var next []entry
	if last := len(m.buffers) - 1; last >= 0 {
		next, m.buffers = m.buffers[last], m.buffers[:last]
	}
	m.mu.Unlock()
	m.signal()
	if next == nil {
		next = make([]entry, 0, postEntries)
	}
	return next
}

// mail is one emptying of the box.
type mail struct {
	calls []func()
	posts []post
	done  []*chunk
}

// take empties the box into m, whose slices it keeps for the next filling.
func (m *mailbox) take(into *mail) {
	clear(into.calls)
	clear(into.done)
	m.mu.Lock()
	m.calls, into.calls = into.calls[:0], m.calls
	m.posts, into.posts = into.posts[:0], m.posts
	m.done, into.done = into.done[:0], m.done
	m.mu.Unlock()
}

// spareBuffers bounds the buffers kept for reuse.
const spareBuffers = 64

// giveBack returns the buffers of posts that were read.
func (m *mailbox) giveBack(posts []post) {
	for i := range posts {
		clear(posts[i].entries)
	}
	m.mu.Lock()
	for i := range posts {
		if len(m.buffers) < spareBuffers {
			m.buffers = append(m.buffers, posts[i].entries[:0])
		}
	}
	m.mu.Unlock()
	clear(posts)
}
