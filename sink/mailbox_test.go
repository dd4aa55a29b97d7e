package sink

import (
	"testing"
	"testing/synctest"
)

// I6: whoever hands something to the pump does not wait for it. Nobody empties
// this box; a wait would be a deadlock in here.
func TestMailboxNeverWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(*testing.T) {
		m := newMailbox()
		for range 1000 {
			m.decided(&chunk{})
			m.call(func() {})
			m.send(nil, nil)
		}
	})
}
