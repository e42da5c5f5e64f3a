package clusters

import "context"

// HealthQueries are what [Store.Healths] reads beside the rows of clusters.
func HealthQueries() []string { return append([]string{latestCapacityQuery}, unwellQueries...) }

// Enter takes a place at the door of streams.
func Enter(ctx context.Context, s *Server) (leave func(), err error) { return s.gate.Door.Enter(ctx) }
