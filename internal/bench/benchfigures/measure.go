package benchfigures

import (
	"runtime"
	"time"
)

// Measured calls f on a heap without garbage and returns how long it took and
// how many times this process allocated meanwhile.
func Measured(f func() error) (took time.Duration, allocations float64, err error) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	err = f()
	took = time.Since(start)
	runtime.ReadMemStats(&after)
	return took, float64(after.Mallocs - before.Mallocs), err
}

// Micros is the time for each of n in microseconds.
func Micros(d time.Duration, n int) float64 {
	return float64(d.Nanoseconds()) / 1000 / float64(n)
}
