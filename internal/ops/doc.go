// Package ops tests the alerts and dashboards in ops/: with Prometheus' own packages, that
// each alert fires on the series that its fault produces and is silent on healthy ones,
// and that each metric and label is one that the program exports (ops/metrics).
package ops
