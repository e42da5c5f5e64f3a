package buffers

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditions are the types that are written here.
func conditions() []string {
	return []string{ConditionReadyForProvisioning, ConditionProvisioning, ConditionReady}
}

// refuse writes into the status why a buffer cannot be served.
func (s *Status) refuse(strategy string, err error) {
	*s = Status{ProvisioningStrategy: &strategy, Conditions: s.Conditions}
	reason := "Error"
	if e, ok := errors.AsType[*refusal](err); ok {
		reason = e.Reason
	}
	for _, kind := range conditions() {
		s.set(kind, false, reason, err.Error())
	}
}

// report writes into the status what becomes of a buffer. The template is nil for the buffer of a
// workload.
func (s *Status) report(strategy string, template *TemplateRef, o outcome) {
	units := o.Ask.Units
	*s = Status{ProvisioningStrategy: &strategy, PodTemplateRef: template, Replicas: &units, Conditions: s.Conditions}
	if template != nil {
		s.PodTemplateGeneration = &o.Ask.Generation
	}
	reason, limited := "Resolved", o.limited()
	if limited != "" {
		reason = "Limited"
	}
	s.set(ConditionReadyForProvisioning, true, reason, fmt.Sprintf("standby machines are kept with room for %d pods%s", units, limited))
	placed := o.Ready + o.Coming
	where := o.where()
	if o.Missing > 0 {
		message := fmt.Sprintf("%d of %d pods have room%s; %s%s", placed, units, where, o.why(), limited)
		s.set(ConditionProvisioning, false, "DoesNotFit", message)
		s.set(ConditionReady, false, "DoesNotFit", message)
		return
	}
	s.set(ConditionProvisioning, true, "Provisioned", fmt.Sprintf("%d pods have room%s%s", placed, where, limited))
	if o.Coming > 0 {
		s.set(
			ConditionReady,
			false,
			"WarmingUp",
			fmt.Sprintf("%d of %d pods have room on machines that are on standby, the machines of the others are on their way", o.Ready, units),
		)
		return
	}
	s.set(ConditionReady, true, "OnStandby", fmt.Sprintf("%d pods have room%s%s", placed, where, limited))
}

// limited says which limit makes the pods fewer than asked for.
func (o *outcome) limited() string {
	if o.Ask.Limited == "" {
		return ""
	}
	return "; " + o.Ask.Limited
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
func (o *outcome) where() string {
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
func (o *outcome) why() string {
	var parts []string
	for _, r := range o.Reasons {
		text := r.Message
		if r.Pool != "" {
			text = "pool " + r.Pool + ": " + text
		}
		parts = append(parts, text)
	}
	if o.Ask.Units > maxUnits {
		parts = append(parts, fmt.Sprintf("at most %d are planned for", maxUnits))
	}
	if len(parts) == 0 {
		return "there is no pool"
	}
	return strings.Join(parts, "; ")
}

// String says for people what becomes of a buffer.
func (o outcome) String() string {
	if o.Ask.Err != nil {
		return fmt.Sprintf("buffer %s: %s", o.Ask.Key, o.Ask.Err)
	}
	text := fmt.Sprintf("buffer %s: %d of %d pods have room%s", o.Ask.Key, o.Ready+o.Coming, o.Ask.Units, o.where())
	if o.Coming > 0 {
		text += fmt.Sprintf(", %d of them once these have warmed up", o.Coming)
	}
	if o.Missing > 0 {
		text += "; " + o.why()
	}
	return text + o.limited()
}
