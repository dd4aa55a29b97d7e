package cdc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox-relay/outbox"
	"github.com/outboxrelay/outbox-relay/test/harness"
)

const drainRows = 200_000

// BenchmarkDrain reads a backlog of 200,000 rows of about 600 B through Next
// alone, beside pg_recvlogical, each time from a fresh copy of the same slot:
// over TCP and the unix socket, with and without gulps, for transactions of
// one row and of ten. It reports rows/s, and the CPU time a row costs the
// reader and, where its process is known, the walsender: those hold on a
// loaded machine too. Run with -benchtime=1x -count=3.
func BenchmarkDrain(b *testing.B) {
	p := harness.StartPostgres(b, harness.PostgresOptions{Major: 15, Settings: map[string]string{"shared_buffers": "256MB", "max_wal_size": "8GB"}})
	for _, perTransaction := range []int{1, 10} {
		d := newBench(b, p)
		d.Exec(b, fmt.Sprintf(`do $$ begin
			for i in 1..%d loop
				insert into outbox (payload) select repeat('0123456789', 60) from generate_series(1, %d);
				commit;
			end loop;
		end $$`, drainRows/perTransaction, perTransaction))
		end := d.lsn(b, "select pg_current_wal_insert_lsn()")
		for _, c := range []struct {
			name, dsn string
			gulp      time.Duration
		}{
			{"tcp", d.DSN(), 0}, {"tcp_gulp", d.DSN(), DefaultGulp}, {"unix", d.SocketDSN(), 0}, {"unix_gulp", d.SocketDSN(), DefaultGulp},
		} {
			b.Run(fmt.Sprintf("rows=%d/%s/next", perTransaction, c.name), func(b *testing.B) {
				cfg := streamConfigOf(b, c.dsn)
				cfg.Gulp = c.gulp
				var cost cost
				for b.Loop() {
					d.drain(b, cfg, &cost)
				}
				cost.report(b)
				b.ReportMetric(float64(drainRows*b.N)/b.Elapsed().Seconds(), "rows/s")
			})
			if c.gulp > 0 {
				continue
			}
			b.Run(fmt.Sprintf("rows=%d/%s/pg_recvlogical", perTransaction, c.name), func(b *testing.B) {
				var cost cost
				for b.Loop() {
					d.recvlogical(b, c.name == "unix", end, &cost)
				}
				cost.report(b)
				b.ReportMetric(float64(drainRows*b.N)/b.Elapsed().Seconds(), "rows/s")
			})
		}
	}
}

// copySlot makes a fresh copy of the slot outside the measured time.
func (d *bench) copySlot(b *testing.B) string {
	b.StopTimer()
	defer b.StartTimer()
	d.Exec(b, "select pg_drop_replication_slot('drain') from pg_replication_slots where slot_name = 'drain' and not active")
	d.Exec(b, "select pg_copy_logical_replication_slot($1, 'drain')", d.slot)
	return "drain"
}

// cost sums CPU time over the runs of a benchmark.
type cost struct{ reader, walsender time.Duration }

func (c *cost) report(b *testing.B) {
	b.ReportMetric(float64(c.reader.Nanoseconds())/1e3/float64(drainRows*b.N), "reader-us/row")
	if c.walsender > 0 {
		b.ReportMetric(float64(c.walsender.Nanoseconds())/1e3/float64(drainRows*b.N), "walsender-us/row")
	}
}

// ownCPU is what this process has used.
func ownCPU(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// processCPU is what another process has used, in steps of 10 ms; 0 where
// there is no /proc.
func processCPU(pid uint32) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

func (d *bench) drain(b *testing.B, cfg Config, cost *cost) {
	slot := d.copySlot(b)
	s := open(b, cfg)
	if err := s.Start(b.Context(), StartOptions{Slot: slot, Publication: d.publication}); err != nil {
		b.Fatal(err)
	}
	s.SetFarBehind(true)
	before := ownCPU(b)
	for rows := 0; rows < drainRows; {
		f, err := s.Next(time.Time{})
		if err != nil {
			b.Fatal(err)
		}
		if f.Kind == FrameData && f.Data[0] == 'I' {
			rows++
		}
	}
	b.StopTimer()
	cost.reader += ownCPU(b) - before
	cost.walsender += processCPU(s.Identity().BackendPID)
	if err := s.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.StartTimer()
}

func (d *bench) recvlogical(b *testing.B, unix bool, end outbox.LSN, cost *cost) {
	bin := filepath.Join(d.Server().BinDir(), "pg_recvlogical")
	if _, err := os.Stat(bin); err != nil {
		b.Skip("NOT RUN: no pg_recvlogical beside the server")
	}
	slot := d.copySlot(b)
	host := "127.0.0.1"
	if unix {
		host = d.Server().SocketDir()
	}
	cmd := exec.CommandContext(b.Context(), bin, "-h", host, "-p", fmt.Sprint(d.Server().Port()), "-U", "postgres", "-d", d.Name(),
		"--slot", slot, "--start", "--endpos", end.String(), "-n", "-o", "proto_version=1", "-o", "publication_names="+d.publication, "-f", os.DevNull)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	cost.reader += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}
