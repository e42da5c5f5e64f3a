package starbase

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
)

// Limits of a [StatusReport]; a server refuses what is beyond.
const (
	// MaxStatusServices is the number of services in one report.
	MaxStatusServices = 5000
	// MaxStatusMessage is the length of a message in bytes. Senders cut it.
	MaxStatusMessage = 1024
	// maxStatusName is the length in bytes of any other text of a report.
	maxStatusName = 253
)

// StatusReport is the result of an agent's last pass: the body of
// POST /api/v1/clusters/{cluster_id}/status.
type StatusReport struct {
	// Epoch is the epoch of the body the pass applied.
	Epoch string `json:"epoch"`
	// Generation is the generation of the body the pass applied. Zero: the agent has accepted
	// no body since its start, and ClusterErrorClass says why; the report is about nothing else.
	Generation int64 `json:"generation"`
	// InstanceID names the running agent process.
	InstanceID string `json:"instance_id"`
	// Region is the region that the agent is configured with. Empty: not known.
	Region string `json:"region,omitempty"`
	// Services has one entry for each service that changed its status, or
	// for all.
	Services Statuses `json:"services"`
	// Complete is true when Services has every service as of that generation, and any
	// other has no object left that the agent must delete. A service of which one is
	// held, or cannot be deleted, is among them.
	Complete bool `json:"complete,omitempty"`
	// LeftProjects are, in a complete report, the projects of which other objects are
	// left that the agent must delete, such as the Namespace.
	LeftProjects []string `json:"left_projects,omitempty"`
	// HeldDeletions are what the agent would delete if a person approved it. Nil: nothing.
	HeldDeletions *HeldDeletions `json:"held_deletions,omitempty"`
	// ClusterErrorClass is one word for programs, such as [ClassGatewayMissing], about why
	// the configuration of the cluster, or a newer state, is not in effect. Empty: it is, as far
	// as the agent has seen.
	ClusterErrorClass string `json:"cluster_error_class,omitempty"`
	// ClusterMessage explains it to people, as [ServiceStatus.Message] does.
	ClusterMessage string `json:"cluster_message,omitempty"`
}

// MaxHeldUnits is the number of units in [HeldDeletions.Units].
const MaxHeldUnits = 100

// HeldDeletions are deletions that wait for the approval of a person, who approves all of
// them or none: POST /api/v1/admin/clusters/{cluster_id}/allow-mass-delete with the digest.
type HeldDeletions struct {
	// Digest names exactly this set of objects.
	Digest string `json:"digest"`
	// Count is the number of units that are held, such as services and projects.
	Count int `json:"count"`
	// Units are the first of them by name, at most [MaxHeldUnits].
	Units []HeldUnit `json:"units"`
}

// HeldUnit is one unit whose deletion is held.
type HeldUnit struct {
	// Unit is what a person would name, such as "service PROJECT/ENVIRONMENT/SERVICE".
	Unit string `json:"unit"`
	// Objects is the number of its objects that would be deleted.
	Objects int `json:"objects"`
	// Reason is why they are not, at most [MaxStatusMessage] bytes.
	Reason string `json:"reason"`
}

// digestPattern is what a person can paste as an argument of a command.
var digestPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9:._-]*$`)

// Validate returns what is wrong, in the order of the fields.
func (h *HeldDeletions) Validate() []FieldError {
	var v violations
	h.validate(&v)
	return v
}

func (h *HeldDeletions) validate(v *violations) {
	v.bounded("held_deletions.digest", h.Digest, 1, maxStatusName)
	v.require("held_deletions.digest", h.Digest, h.Digest == "" || digestPattern.MatchString(h.Digest),
		"letters, digits and : . _ -, the first a letter or digit")
	v.require("held_deletions.count", h.Count, h.Count >= 1, "1 or more")
	v.require("held_deletions.units", len(h.Units), len(h.Units) <= MaxHeldUnits, fmt.Sprintf("at most %d units", MaxHeldUnits))
	for i := range h.Units {
		in := fmt.Sprintf("held_deletions.units[%d].", i)
		v.bounded(in+"unit", h.Units[i].Unit, 1, maxStatusName)
		v.require(in+"objects", h.Units[i].Objects, h.Units[i].Objects >= 0, "0 or more")
		v.message(in+"reason", h.Units[i].Reason)
	}
}

// Statuses are the services of a [StatusReport].
type Statuses []ServiceStatus

// ErrTooManyServices is a report of more than [MaxStatusServices].
var ErrTooManyServices = errors.New("the report has more than 5000 services, which do not fit")

// UnmarshalJSON implements [json.Unmarshaler]. It stops at the first service too many: a
// small text can stand for a large list.
func (s *Statuses) UnmarshalJSON(data []byte) error {
	*s = nil
	if string(data) == "null" {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	if first, err := decoder.Token(); err != nil || first != json.Delim('[') {
		var list []ServiceStatus
		return inField("services", json.Unmarshal(data, &list))
	}
	for decoder.More() {
		if len(*s) == MaxStatusServices {
			return ErrTooManyServices
		}
		var next ServiceStatus
		if err := decoder.Decode(&next); err != nil {
			return inField("services", err)
		}
		*s = append(*s, next)
	}
	return nil
}

// inField names the field of the body in an error about an entry of it.
func inField(field string, err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field != "" {
			wrong.Field = "." + wrong.Field
		}
		wrong.Field = field + wrong.Field
	}
	return err
}

// ServiceStatus is the state of one service in its cluster.
type ServiceStatus struct {
	// ProjectID is as in the desired state, well-formed or not.
	ProjectID string `json:"project_id"`
	// Environment is as in the desired state, well-formed or not.
	Environment string `json:"environment"`
	// ServiceID is as in the desired state, well-formed or not.
	ServiceID string `json:"service_id"`
	// ObservedGeneration is the newest generation of the desired state that
	// is in effect for the service.
	ObservedGeneration int64 `json:"observed_generation"`
	// Phase is one of the constants of type [Phase].
	Phase Phase `json:"phase"`
	// Ready is the number of pods that are ready.
	Ready int `json:"ready"`
	// Desired is the number of pods that are wanted.
	Desired int `json:"desired"`
	// ImageDigest is the digest that runs; empty if unknown.
	ImageDigest string `json:"image_digest,omitempty"`
	// ErrorClass is one word for programs, such as [ClassNameTaken]. Empty:
	// no error.
	ErrorClass string `json:"error_class,omitempty"`
	// Message is for people and at most [MaxStatusMessage] bytes. It must
	// carry no secret value.
	Message string `json:"message,omitempty"`
}

// Phase is where a service stands.
type Phase string

// The phases of a service.
const (
	// PhaseApplying is a service whose objects are being written.
	PhaseApplying Phase = "Applying"
	// PhaseProgressing is a service whose pods are not yet all as wanted.
	PhaseProgressing Phase = "Progressing"
	// PhaseHealthy is a service that runs as wanted.
	PhaseHealthy Phase = "Healthy"
	// PhaseFailed is a service that could not be applied or does not run.
	PhaseFailed Phase = "Failed"
	// PhaseRejected is a service that must not be applied as it was sent.
	PhaseRejected Phase = "Rejected"
)

// Error classes that the contract names. Others may be added by agents.
const (
	// ClassNameTaken is a foreign object that has the name of one of ours.
	ClassNameTaken = "NameTaken"
	// ClassContested is an object that another manager changes back after each repair.
	ClassContested = "Contested"
	// ClassDeletionHeld is a deletion that waits for an approval, for the end of a grace, or
	// for a proof that the agent has applied the object.
	ClassDeletionHeld = "DeletionHeld"
	// ClassGatewayMissing is a Service of the gateway, or its namespace, that the cluster
	// does not have. It is about a cluster.
	ClassGatewayMissing = "GatewayMissing"
	// ClassStateNotRecorded is a state that is not applied, because the agent cannot read or
	// write down which one was the newest. It is about a cluster.
	ClassStateNotRecorded = "StateNotRecorded"
	// ClassStateRefused is a state that the agent has refused: it is older than the one before,
	// or is not whole. It is about a cluster.
	ClassStateRefused = "StateRefused"
	// ClassUnseen is an API server that does not answer the agent: what is reported is what was
	// so before. It is about a cluster, or about a deleted service of which objects may be left.
	ClassUnseen = "Unseen"
	// ClassDeletionsNotRecorded are deletions that wait, because the agent cannot read or write
	// down what it has deleted before. It is about a cluster.
	ClassDeletionsNotRecorded = "DeletionsNotRecorded"
	// ClassLeftover is an object of a deleted project that cannot be deleted, such as a Namespace
	// in which a person keeps something. It is about a cluster.
	ClassLeftover = "Leftover"
)

// Identity returns the identity of the service the status is about.
func (s *ServiceStatus) Identity() Identity {
	return Identity{ProjectID: s.ProjectID, Environment: s.Environment, ServiceID: s.ServiceID}
}

// Validate returns what is wrong with the report, in the order of its fields.
// Identities need not be well-formed: a service that was rejected for its
// name is reported under that name.
func (r *StatusReport) Validate() []FieldError {
	var v violations
	v.bounded("epoch", r.Epoch, 1, maxStatusName)
	applied := r.Generation >= 1 || r.Generation == 0 && r.ClusterErrorClass != "" && len(r.Services) == 0 && !r.Complete
	v.require("generation", r.Generation, applied, "1 or more; or 0 with a cluster_error_class, without services, not complete")
	v.bounded("instance_id", r.InstanceID, 1, maxStatusName)
	v.bounded("region", r.Region, 0, maxStatusName)
	v.require(
		"left_projects",
		len(r.LeftProjects),
		len(r.LeftProjects) <= MaxStatusServices,
		fmt.Sprintf("at most %d projects", MaxStatusServices),
	)
	for i, id := range r.LeftProjects {
		v.bounded(fmt.Sprintf("left_projects[%d]", i), id, 1, maxStatusName)
	}
	if r.HeldDeletions != nil {
		r.HeldDeletions.validate(&v)
	}
	v.bounded("cluster_error_class", r.ClusterErrorClass, 0, maxStatusName)
	v.message("cluster_message", r.ClusterMessage)
	for i := range r.Services {
		status := &r.Services[i]
		in := func(field string) string { return fmt.Sprintf("services[%d].%s", i, field) }
		v.bounded(in("project_id"), status.ProjectID, 1, maxStatusName)
		v.bounded(in("environment"), status.Environment, 1, maxStatusName)
		v.bounded(in("service_id"), status.ServiceID, 1, maxStatusName)
		v.require(in("observed_generation"), status.ObservedGeneration, status.ObservedGeneration >= 0, "0 or more")
		v.require(in("phase"), status.Phase, status.Phase.known(), "one of Applying, Progressing, Healthy, Failed, Rejected")
		v.require(in("ready"), status.Ready, status.Ready >= 0, "0 or more")
		v.require(in("desired"), status.Desired, status.Desired >= 0, "0 or more")
		v.bounded(in("image_digest"), status.ImageDigest, 0, maxStatusName)
		v.bounded(in("error_class"), status.ErrorClass, 0, maxStatusName)
		v.message(in("message"), status.Message)
	}
	return v
}

// message requires a message that is not too long. It is not quoted.
func (v *violations) message(field, message string) {
	if len(message) > MaxStatusMessage {
		v.add(field, fmt.Sprintf("%d bytes", len(message)), fmt.Sprintf("at most %d bytes", MaxStatusMessage))
	}
}

func (p Phase) known() bool {
	switch p {
	case PhaseApplying, PhaseProgressing, PhaseHealthy, PhaseFailed, PhaseRejected:
		return true
	}
	return false
}
