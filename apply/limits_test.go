package apply_test

import "github.com/seed-9e1ffd66/trueup/apply"

// noLimit lets every deletion pass.
func noLimit() *apply.Guard { return &apply.Guard{Absent: apply.Limit{Percent: 100}} }
