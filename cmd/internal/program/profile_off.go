//go:build !profile

package program

// profile does nothing: a released program shows nothing of itself but its metrics.
func profile() (stop func()) { return func() {} }
