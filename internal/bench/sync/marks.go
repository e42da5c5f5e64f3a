package main

import "github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"

// marks are what package statesync is measured by. How often the log is read is exact and must hold on any machine;
// times and memory are told as they are.
func marks() []benchfigures.Mark {
	peers := func(figure string) []string { return []string{"trueup_" + figure, "controlplane_" + figure} }
	return []benchfigures.Mark{
		{
			ID: "S4", What: "reads of the log for a change, with 1,000 streams against 1", Figure: "S4_reads_1000_against_1", Limit: 1.05,
			Hard: true, Peers: []string{"S4_reads_per_change_1_streams", "S4_reads_per_change_1000_streams"},
		},
		{
			ID: "S5", What: "CPU for a delivery, 100 to 4,000 resources against 10", Figure: "S5_cpu_flat_10_to_4000", Limit: 1.3,
		},
		{
			ID: "S5", What: "the same with 1,000 resources, against the other's", Figure: "S5_cpu_against_peer_at_1000", Limit: 0.2,
			Peers: peers("cpu_per_delivery_1000"),
		},
		{
			ID: "S5", What: "memory for a client, against the other's", Figure: "S5_memory_against_peer", Limit: 0.25,
			Peers: peers("memory_per_client"),
		},
		{
			ID: "S5", What: "all clients connect and get everything, against the other's", Figure: "S5_bootstrap_against_peer", Limit: 0.5,
			Peers: peers("bootstrap"),
		},
		{ID: "S6", What: "CPU for a change that is sent with others", Figure: "S6_ndjson_cpu_per_change", Limit: 8},
		{
			ID: "S7", What: "1,000 clients connect at once, against as many downloads of the bytes", Figure: "S7_at_once_against_a_file", Limit: 2,
			Peers: []string{"S7_connected_at_once", "S7_file_at_once"},
		},
		{ID: "S7", What: "1,000 agents synced after their server is restarted at once", Figure: "S7_restart_0s_all_synced", NoLimit: true},
		{ID: "S7", What: "the same after 10 s: no longer than it was away, and the lists", Figure: "S7_restart_10s_all_synced", Limit: 13},
		{
			ID: "S7", What: "memory of the new server at most, against the one before at rest", Limit: 1.5,
			Figure: "S7_restart_10s_memory_peak_against_steady",
		},
		{ID: "S7", What: "agents that try within 100 ms at most", Figure: "S7_restart_10s_most_tries_in_100ms", Limit: 500},
	}
}
