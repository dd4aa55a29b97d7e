package chaos

import (
	"fmt"
	"testing"
)

// narrowings are what a person may do to the publication, and the way back.
var narrowings = map[string]struct{ harm, repair string }{
	"column list": {`alter publication outbox_relay_pub set table public.outbox (id, aggregate_id)`, `alter publication outbox_relay_pub set table public.outbox`},
	"emptied":     {`alter publication outbox_relay_pub drop table public.outbox`, `alter publication outbox_relay_pub add table public.outbox`},
}

// TestPublicationNarrowedWhileRunning proves that a publication which is
// narrowed under a running relay is found out with the default interval: the
// relay fails, the next start ends with the documented code, no record is made
// of half a row, and rows before it are published once. After the repair, which
// for half a row is the one of a lost slot, it goes on.
// Cases F7, F26 of docs/guarantees.md.
// Case F27 of docs/guarantees.md.
func TestPublicationNarrowedWhileRunning(t *testing.T) {
	t.Parallel()
	for _, major := range []int{15, 17, 18} {
		for name, c := range narrowings {
			t.Run(fmt.Sprintf("%d %s", major, name), func(t *testing.T) {
				t.Parallel()
				s := kfakeSite(t, major)
				role := "relay_" + s.DB.Name()
				asRole(t, s, role)
				s.DB.Exec(t, `alter role `+role+` set client_min_messages = error`) // hides the server's warnings from whoever does not pin it
				p := s.Start(t)
				p.Ready()
				s.Insert(t, "before", "before")
				s.Settled(t)
				s.DB.Exec(t, c.harm)
				s.Insert(t, "hidden")
				p.State("failed")
				p.Stop()
				if code := s.Start(t).ExitCode(); code != 15 {
					t.Fatalf("exit code %d, want 15", code)
				}
				if n, ready := len(s.Kafka.Dump(t, s.Topic)), s.Count(t, "status = 0"); n != 2 || ready != "1" {
					t.Fatalf("%d records, want 2; %s rows READY, want 1", n, ready)
				}
				s.DB.Exec(t, c.repair)
				if name == "column list" {
					// The log holds half of the hidden row, for ever.
					for _, verb := range []string{"drop", "create"} {
						if out, err := s.Command(t, "slot", verb, "--confirm", s.Slot()).CombinedOutput(); err != nil {
							t.Fatalf("slot %s: %v\n%s", verb, err, out)
						}
					}
				}
				s.DB.Exec(t, `delete from public.outbox where status = 0`)
				s.Insert(t, "hidden")
				p = s.Start(t)
				p.Ready()
				s.Settled(t)
				p.Stop()
				keys := map[string]int{}
				for _, r := range s.Kafka.Dump(t, s.Topic) {
					keys[string(r.Key)]++
				}
				if keys["before"] != 2 || keys["hidden"] != 1 || len(keys) != 2 {
					t.Errorf("records by key: %v, want two before and the hidden row, inserted again", keys)
				}
			})
		}
	}
}
