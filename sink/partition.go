package sink

// partitionOf is the partition of a key among n: Java's default partitioner,
// bit for bit, so that a key keeps its partition when other producers write
// the same topic. n must be positive.
func partitionOf(key string, n int) int {
	return int(murmur2(key)&0x7fffffff) % n
}

// murmur2 is MurmurHash2 with Kafka's seed, as in
// org.apache.kafka.common.utils.Utils.
func murmur2(key string) uint32 {
	const (
		seed uint32 = 0x9747b28c
		m    uint32 = 0x5bd1e995
		r           = 24
	)
	h := seed ^ uint32(len(key))
	i := 0
	for ; len(key)-i >= 4; i += 4 {
		k := uint32(key[i]) | uint32(key[i+1])<<8 | uint32(key[i+2])<<16 | uint32(key[i+3])<<24
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
	}
	switch len(key) - i {
	case 3:
		h ^= uint32(key[i+2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[i+1]) << 8
		fallthrough
	case 1:
		h ^= uint32(key[i])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}
