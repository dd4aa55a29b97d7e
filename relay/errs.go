package relay

import (
	"fmt"
	"time"
)

// SilenceError reports a server that said nothing for too long although each
// beat asked it to.
type SilenceError struct {
	Silent, Limit time.Duration
}

// Error gives both times.
func (e *SilenceError) Error() string {
	return fmt.Sprintf("the server has been silent for %v (limit %v)", e.Silent.Round(time.Millisecond), e.Limit)
}
