package sink

import (
	"math/bits"

	"github.com/twmb/franz-go/pkg/kgo"
)

// batchOverhead is the size of a record batch v2 without records, as brokers
// count it against max.message.bytes (Kafka documentation, "Record Batch"):
// base offset 8, length 4, leader epoch 4, magic 1, crc 4, attributes 2, last
// offset delta 4, two timestamps 16, producer id 8, epoch 2, sequence 4,
// record count 4.
const batchOverhead = 8 + 4 + 4 + 1 + 4 + 2 + 4 + 16 + 8 + 2 + 4 + 4

// recordSize is the uncompressed size of a record in a batch, in bytes. The
// deltas are those to the batch's first record.
func recordSize(r *kgo.Record, timestampDelta int64, offsetDelta int) int {
	n := 1 + // attributes
		varintSize(timestampDelta) +
		varintSize(int64(offsetDelta)) +
		bytesSize(len(r.Key), r.Key == nil) +
		bytesSize(len(r.Value), r.Value == nil) +
		varintSize(int64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		n += bytesSize(len(h.Key), false) + bytesSize(len(h.Value), h.Value == nil)
	}
	return varintSize(int64(n)) + n
}

// bytesSize is the size of a field with its length before it; null is the
// length -1.
func bytesSize(n int, null bool) int {
	if null {
		return 1
	}
	return varintSize(int64(n)) + n
}

// varintSize is the size of a zigzag varint.
func varintSize(v int64) int {
	u := uint64(v<<1) ^ uint64(v>>63)
	return (bits.Len64(u|1) + 6) / 7
}
