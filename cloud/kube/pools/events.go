package pools

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
)

// Events returns the Events of the pool's object about an action that has succeeded. Many have none.
func Events(a cloud.Action) []nodes.Event {
	var events []nodes.Event
	for _, reason := range reasonsOf(a) {
		kind := corev1.EventTypeNormal
		switch reason {
		case "WarmupTimeout", "WarmupFailed", "MaxRuntimeExceeded", "DrainGivenUp":
			kind = corev1.EventTypeWarning
		}
		events = append(events, nodes.Event{Type: kind, Reason: reason, Note: a.String()})
	}
	return events
}

// reasonsOf returns the reasons of the Events of an action.
func reasonsOf(a cloud.Action) []string {
	switch a.Verb {
	case cloud.Launch:
		return []string{"Replenishing", "WarmupStarted"}
	case cloud.Start:
		return []string{"ScaleUp", "NodeStarted"}
	case cloud.Adopt:
		return []string{"NodeAdopted"}
	case cloud.Shelve:
		if a.From == cloud.StateWarmup {
			return []string{"WarmupCompleted"}
		}
		return []string{"NodeStopped"}
	case cloud.Drain:
		switch {
		case a.From == a.To:
			return nil
		case a.Intent.Reason == cloud.ReasonRuntime:
			return []string{"MaxRuntimeExceeded", "ScaleDown"}
		case a.Intent.Reason == cloud.ReasonUnderutilized:
			return []string{"Underutilized", "ScaleDown"}
		}
		return []string{"ScaleDown"}
	case cloud.GiveUp:
		return []string{"DrainGivenUp"}
	case cloud.ForceStop:
		if a.From == cloud.StateWarmup {
			return []string{"WarmupTimeout"}
		}
	case cloud.Terminate:
		if a.From == cloud.StateWarmup {
			return []string{"WarmupFailed"}
		}
		return []string{"Terminating"}
	case cloud.Forget:
		return []string{"NodeRemoved"}
	default:
	}
	return nil
}
