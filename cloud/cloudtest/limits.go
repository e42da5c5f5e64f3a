package cloudtest

import "time"

// bucketState is how many calls of one operation are left, as of a time. It is filled up to
// a time only when a call asks.
type bucketState struct {
	tokens float64 // calls; a fraction is on its way to the next
	at     time.Time
}

// limit takes a token, or returns how long until there is one.
func (f *Fake) limit(operation string, now time.Time) time.Duration {
	limit, ok := f.Limits[operation]
	if !ok {
		return 0
	}
	b := f.buckets[operation]
	if b == nil {
		b = &bucketState{tokens: limit.Size, at: now}
		f.buckets[operation] = b
	}
	b.tokens = min(limit.Size, b.tokens+now.Sub(b.at).Seconds()*limit.Refill)
	b.at = now
	if b.tokens >= 1 {
		b.tokens--
		return 0
	}
	return time.Duration((1 - b.tokens) / limit.Refill * float64(time.Second))
}
