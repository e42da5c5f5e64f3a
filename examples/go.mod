module github.com/seed-9e1ffd66/trueup/examples

go 1.26.0
