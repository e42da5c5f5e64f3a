module github.com/seed-9e1ffd66/trueup/statesync/sqlstore

go 1.26.0
