module github.com/seed-9e1ffd66/trueup/cloud/aws

go 1.26.0
