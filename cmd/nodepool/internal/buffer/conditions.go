package buffer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Conditions are the types that are written here.
func Conditions() []string {
	return []string{ConditionReadyForProvisioning, ConditionProvisioning, ConditionReady}
}

// Refuse writes into the status why a buffer cannot be served.
func (s *Status) Refuse(err error) {
	s.mark(nil, nil, nil)
	reason := "Error"
	if e, ok := errors.AsType[*Error](err); ok {
		reason = e.Reason
	}
	for _, kind := range Conditions() {
		s.set(kind, false, reason, err.Error())
	}
}

// Report writes into the status what becomes of a buffer. The template is nil for that of
// a workload.
func (s *Status) Report(template *TemplateRef, generation int64, units int32, o Outcome) {
	var seen *int64
	if template != nil {
		seen = &generation
	}
	s.mark(template, seen, &units)
	s.set(ConditionReadyForProvisioning, true, "Resolved", fmt.Sprintf("standby machines are kept with room for %d pods", units))
	placed := o.Ready + o.Coming
	where := o.where()
	if o.Missing > 0 {
		message := fmt.Sprintf("%d of %d pods have room%s; %s", placed, units, where, o.why(units))
		s.set(ConditionProvisioning, false, "DoesNotFit", message)
		s.set(ConditionReady, false, "DoesNotFit", message)
		return
	}
	s.set(ConditionProvisioning, true, "Provisioned", fmt.Sprintf("%d pods have room%s", placed, where))
	if o.Coming > 0 {
		s.set(
			ConditionReady,
			false,
			"WarmingUp",
			fmt.Sprintf("%d of %d pods have room on machines that are on standby, the machines of the others are on their way", o.Ready, units),
		)
		return
	}
	s.set(ConditionReady, true, "OnStandby", fmt.Sprintf("%d pods have room%s", placed, where))
}

func (s *Status) mark(template *TemplateRef, generation *int64, units *int32) {
	strategy := Strategy
	s.ProvisioningStrategy, s.PodTemplateRef, s.PodTemplateGeneration, s.Replicas = &strategy, template, generation, units
}

func (s *Status) set(kind string, is bool, reason, message string) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	const most = 1024
	message = strings.ToValidUTF8(message[:min(len(message), most)], "") // a cut may part a character
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
}

// where says whose machines have the room.
func (o *Outcome) where() string {
	parts := make([]string, 0, len(o.Pools))
	for _, pool := range slices.Sorted(maps.Keys(o.Pools)) {
		parts = append(parts, fmt.Sprintf("%d of pool %s", o.Pools[pool], pool))
	}
	if len(parts) == 0 {
		return ""
	}
	return " on standby machines: " + strings.Join(parts, ", ")
}

// why says why pods are missing.
func (o *Outcome) why(units int32) string {
	var parts []string
	for _, r := range o.Reasons {
		text := r.Message
		if r.Pool != "" {
			text = "pool " + r.Pool + ": " + text
		}
		parts = append(parts, text)
	}
	if units > MaxUnits {
		parts = append(parts, fmt.Sprintf("at most %d are planned for", MaxUnits))
	}
	if len(parts) == 0 {
		return "there is no pool"
	}
	return strings.Join(parts, "; ")
}

// String says for people what becomes of a buffer.
func (o Outcome) String() string {
	units := o.Ready + o.Coming + o.Missing
	text := fmt.Sprintf("buffer %s: %d of %d pods have room%s", o.Key, o.Ready+o.Coming, units, o.where())
	if o.Coming > 0 {
		text += fmt.Sprintf(", %d of them once these have warmed up", o.Coming)
	}
	if o.Missing > 0 {
		text += "; " + o.why(units)
	}
	return text
}
