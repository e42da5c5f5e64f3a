package v1alpha1

// Disruption decides about drains of good machines that have pods: those over maxNodeRuntime, and
// those that are not needed.
type Disruption struct {
	// ConsolidateAfter is for how long all pods of a machine must have been there, and have fitted
	// on other Nodes that run, before it is drained and goes back to standby. A machine runs on
	// with a pod that no ReplicaSet, StatefulSet or ReplicationController makes again, one that a
	// PodDisruptionBudget does not let go now, and one that asks for it as for maxNodeRuntime.
	// Absent: never.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('30s')",message="must be at least 30s"
	ConsolidateAfter *Duration `json:"consolidateAfter,omitempty"`
	// Budgets bound how many machines may be on their way at a time. The least of those that
	// apply now counts. Absent, and while none applies: one.
	// +optional
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	Budgets []DisruptionBudget `json:"budgets,omitempty"`
}

// DisruptionBudget is how many machines may be drained at a time, always or at certain times.
//
// +kubebuilder:validation:XValidation:rule="has(self.schedule) == has(self.duration)",message="schedule and duration must be set together"
type DisruptionBudget struct {
	// Nodes is a number, or a share of the running machines, rounded up: "0", "2" or "10%".
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:Pattern=`^((100|[0-9]{1,2})%|[0-9]{1,4})$`
	Nodes string `json:"nodes"`
	// Schedule is when the budget begins to apply, in UTC, in the syntax of cron: five fields,
	// such as "0 9 * * mon-fri", or @daily and the like, without a time zone. Absent: it always
	// applies.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Schedule string `json:"schedule,omitempty"`
	// Duration is for how long it applies from then on.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="must be at least 1m"
	Duration *Duration `json:"duration,omitempty"`
}
