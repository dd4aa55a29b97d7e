package config

import "strings"

// nearest picks the candidate that was most likely meant by word, or "".
// A candidate qualifies when few letters differ, when word begins it, or when
// its last part is the same as word's last part.
func nearest(word string, candidates []string) string {
	best, bestDistance := "", max(2, len(word)/4)+1
	for _, c := range candidates {
		if d := distance(word, c, bestDistance); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	if best != "" {
		return best
	}
	for _, c := range candidates {
		if strings.HasPrefix(c, word) {
			return c
		}
	}
	for _, c := range candidates {
		if lastPart(c) == lastPart(word) {
			return c
		}
	}
	return ""
}

func lastPart(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// distance counts the letters to insert, delete or change between a and b.
// It stops counting at limit, so that a long word costs little.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
