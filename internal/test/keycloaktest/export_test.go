package keycloaktest

// Unpack is unpack.
func Unpack(from, to string) error { return unpack(from, to) }
