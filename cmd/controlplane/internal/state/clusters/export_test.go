package clusters

// HealthQueries are what [Store.Healths] reads beside the rows of clusters.
func HealthQueries() []string { return append([]string{latestCapacityQuery}, unwellQueries...) }
