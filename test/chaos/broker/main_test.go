package broker

import (
	"os"
	"testing"

	"github.com/outboxrelay/outbox-relay/test/rig"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }
