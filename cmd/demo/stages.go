package main

import (
	"context"
	"fmt"
	"math"
	"net/http"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// stages prints where the time of the pods went.
func (n *nodePools) stages(ctx context.Context) error {
	n.demo.display.print("  stage      p50      p99")
	for _, stage := range []string{"decision", "api", "boot", "register", "ready", "bind"} {
		p50, err := n.quantile(ctx, "stratos_nodepool_scaleup_stage_duration_seconds", stage, .5)
		if err != nil {
			return err
		}
		p99, err := n.quantile(ctx, "stratos_nodepool_scaleup_stage_duration_seconds", stage, .99)
		if err != nil {
			return err
		}
		n.demo.display.print(fmt.Sprintf("  %-9s %5.0f ms %5.0f ms", stage, 1000*p50, 1000*p99))
	}
	return nil
}

// quantile estimates a quantile of a histogram of the operator, as Prometheus does.
func (n *nodePools) quantile(ctx context.Context, name, stage string, q float64) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.metrics+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return 0, err
	}
	for _, m := range families[name].GetMetric() {
		for _, label := range m.GetLabel() {
			if label.GetName() != "stage" || label.GetValue() != stage {
				continue
			}
			rank, below, from := q*float64(m.GetHistogram().GetSampleCount()), 0.0, 0.0
			for _, b := range m.GetHistogram().GetBucket() {
				if count := float64(b.GetCumulativeCount()); count >= rank {
					if count == below || math.IsInf(b.GetUpperBound(), 1) {
						return from, nil
					}
					return from + (b.GetUpperBound()-from)*(rank-below)/(count-below), nil
				}
				below, from = float64(b.GetCumulativeCount()), b.GetUpperBound()
			}
			return from, nil
		}
	}
	return 0, fmt.Errorf("%s has no stage %s", name, stage)
}
