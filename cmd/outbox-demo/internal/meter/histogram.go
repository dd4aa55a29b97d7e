package meter

import (
	"math"
	"time"
)

// Buckets grow by 2 % from 10 µs, so a quantile is right to 1 %, and 940 of
// them reach 1,200 s: 10 µs × 1.02^940 = 1,213 s.
const (
	smallest = 10 * time.Microsecond
	growth   = 1.02
	buckets  = 940
)

// Histogram counts durations. The zero value is empty and ready.
// It is not safe for concurrent use.
type Histogram struct {
	counts [buckets]uint64
	n      uint64
	max    time.Duration
}

// Add counts one duration. One below the smallest bucket counts in the first,
// one beyond the largest in the last.
func (h *Histogram) Add(d time.Duration) {
	i := 0
	if d > smallest {
		i = min(buckets-1, int(math.Log(float64(d)/float64(smallest))/math.Log(growth)))
	}
	h.counts[i]++
	h.n++
	h.max = max(h.max, d)
}

// Quantiles are what a person reads of a histogram. All are zero when N is.
type Quantiles struct {
	P50, P99, Max time.Duration
	N             uint64
}

// Quantiles gives the summary.
func (h *Histogram) Quantiles() Quantiles {
	return Quantiles{P50: h.Quantile(.5), P99: h.Quantile(.99), Max: h.max, N: h.n}
}

// Quantile gives the duration that the fraction q (0 to 1) of all counted ones
// do not exceed, to 1 %; 0 when nothing was counted.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := uint64(math.Ceil(q * float64(h.n)))
	rank = min(max(rank, 1), h.n)
	var seen uint64
	for i, c := range h.counts {
		if seen += c; seen >= rank {
			middle := float64(smallest) * math.Pow(growth, float64(i)+.5)
			return min(time.Duration(middle), h.max)
		}
	}
	return h.max
}
