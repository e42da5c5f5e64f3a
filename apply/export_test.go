package apply

// NewVigil is for tests.
var NewVigil = newVigil
