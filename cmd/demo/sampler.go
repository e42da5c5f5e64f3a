package main

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/chart"
)

// sampleEvery is how often the machines are counted.
const sampleEvery = 200 * time.Millisecond

// sampler counts the machines by state, and the pods that wait, as long as it runs.
type sampler struct {
	client *kubernetes.Clientset
	began  time.Time

	mu      sync.Mutex
	samples []chart.Sample
}

// states are what the picture shows, from the bottom to the top.
func states() []string { return []string{"running", "standby", "warmup", "terminating"} }

// start counts until ctx ends. What cannot be read at a time is not counted then.
func (s *sampler) start(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.count(ctx)
		}
	}
}

func (s *sampler) count(ctx context.Context) {
	nodes, err := s.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelPool, ResourceVersion: "0"})
	if err != nil {
		return
	}
	pods, err := s.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return
	}
	sample := chart.Sample{At: time.Since(s.began), Counts: make([]int, len(states()))}
	for i := range nodes.Items {
		if state := slices.Index(states(), nodes.Items[i].Labels[v1alpha1.LabelState]); state >= 0 {
			sample.Counts[state]++
		}
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Spec.NodeName == "" && p.Status.Phase == corev1.PodPending {
			sample.Line++
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples = append(s.samples, sample)
}

// picture draws the samples.
func (s *sampler) picture() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return chart.States{Title: "The machines of the pool", Names: states(), Line: "pending pods", Samples: s.samples}.SVG()
}
