package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"
)

// endPrefix is the prefix of the script's last logical message; it comes behind
// kind, flags and LSN.
var endPrefix = []byte("end\x00")

// readSlot reads the slot golden_<format> up to the script's last transaction.
func readSlot(ctx context.Context, dsn, format string) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := connect(ctx, dsn, map[string]string{"replication": "database"})
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	args := []string{"proto_version '1'", "publication_names 'golden'", "messages 'true'"}
	if format == "binary" {
		args = append(args, "binary 'true'")
	}
	err = pglogrepl.StartReplication(ctx, conn, "golden_"+format, 0, pglogrepl.StartReplicationOptions{PluginArgs: args})
	if err != nil {
		return nil, err
	}
	var frames [][]byte
	for ended := false; ; {
		message, err := conn.ReceiveMessage(ctx)
		if err != nil {
			return nil, err
		}
		frame, err := frameOf(message)
		if err != nil {
			return nil, err
		}
		if frame == nil {
			continue
		}
		frames = append(frames, bytes.Clone(frame))
		ended = ended || (frame[0] == 'M' && bytes.HasPrefix(frame[10:], endPrefix))
		if ended && frame[0] == 'C' {
			return frames, nil
		}
	}
}

// frameOf gives the pgoutput message in a protocol message; nil for keepalives,
// which need no answer in so short a time.
func frameOf(message pgproto3.BackendMessage) ([]byte, error) {
	data, ok := message.(*pgproto3.CopyData)
	if !ok {
		return nil, fmt.Errorf("receiving %T, want data", message)
	}
	if data.Data[0] != pglogrepl.XLogDataByteID {
		return nil, nil
	}
	wal, err := pglogrepl.ParseXLogData(data.Data[1:])
	if err != nil {
		return nil, err
	}
	return wal.WALData, nil
}
