package cloud

import "context"

// A Provider is one cloud account and region: the eight operations that a pool
// of machines needs. Implementations are safe for concurrent use and pass
// cloudtest.Run.
//
// A provider that can do many machines in one call also implements
// [BatchMachines], [BatchPowerControl] or [BatchInventory]. [Executor] finds these by
// type assertion and falls back to single calls.
type Provider interface {
	Machines
	PowerControl
	Inventory
}

// Machines creates and removes machines.
type Machines interface {
	// LaunchInstance creates one machine. The same Token with the same config
	// never creates a second one, also if two processes call at once: then it returns
	// the machine of the first call. If that is terminated, the result may also be
	// [ErrTokenSpent]; a cloud that has forgotten the machine may have forgotten the Token,
	// too, and create one in its place. The same Token with another config is
	// [ErrTokenReused]. The machine carries config.Tags from its first moment.
	//
	// In a cloud without tokens, a unique name that is made from the Token does the same.
	LaunchInstance(ctx context.Context, config LaunchConfig) (Instance, error)

	// TerminateInstance removes a machine for good. A machine that is already
	// shutting down or terminated is not an error, a machine that the cloud
	// does not know is [ErrNotFound]. A cloud may forget a machine as soon as it is
	// terminated: for an id that existed, ErrNotFound is the proof.
	TerminateInstance(ctx context.Context, id string) error
}

// PowerControl starts and stops machines without losing them.
type PowerControl interface {
	// StartInstance starts a stopped machine and returns once the cloud has
	// accepted the request, not when the machine runs. A machine that is
	// pending or running already is not an error. From any other state it is an
	// [InvalidStateError].
	StartInstance(ctx context.Context, id string) error

	// StopInstance stops a running machine and returns once the cloud has
	// accepted the request. Force cuts the power of an operating system that
	// does not react. A machine that is stopping or stopped already is not an
	// error. From any other state it is an [InvalidStateError].
	StopInstance(ctx context.Context, id string, force bool) error
}

// Inventory reads machines and their tags.
type Inventory interface {
	// GetInstanceState returns the state of one machine, read from the cloud.
	GetInstanceState(ctx context.Context, id string) (InstanceState, error)

	// GetInstance returns one machine, read from the cloud. A machine that the
	// cloud does not know is [ErrNotFound].
	GetInstance(ctx context.Context, id string) (Instance, error)

	// ListInstances returns every machine that has all of the tags, terminated
	// ones included for as long as the cloud reports them. It is complete or an
	// error, never a part. A list may lag behind other answers.
	ListInstances(ctx context.Context, tags map[string]string) ([]Instance, error)

	// UpdateInstanceTags sets these tags and leaves all others as they are. Keys have
	// up to 128 characters and values up to 256, of any case, with "/", ".", ":" and
	// spaces. A provider whose cloud allows less translates both ways.
	UpdateInstanceTags(ctx context.Context, id string, tags map[string]string) error
}

// BatchMachines is implemented by a [Provider] that creates or removes many
// machines with one call to the cloud.
type BatchMachines interface {
	// LaunchInstances creates up to count machines of one config. All share the Token:
	// a repeated call returns the machines of the first. The machines that were created
	// are returned also with an error, such as a [CapacityError] for the rest.
	LaunchInstances(ctx context.Context, config LaunchConfig, count int) ([]Instance, error)

	// TerminateInstances terminates each machine, and returns the error of each
	// that was not, by id.
	TerminateInstances(ctx context.Context, ids []string) map[string]error
}

// BatchPowerControl is implemented by a [Provider] that starts or stops many machines
// with one call to the cloud. One machine that cannot be started or stopped
// holds back no other.
type BatchPowerControl interface {
	// StartInstances starts each machine, and returns the error of each that
	// was not, by id.
	StartInstances(ctx context.Context, ids []string) map[string]error

	// StopInstances stops each machine, and returns the error of each that was
	// not, by id.
	StopInstances(ctx context.Context, ids []string, force bool) map[string]error
}

// BatchInventory is implemented by a [Provider] that reads or tags many machines
// with one call to the cloud.
type BatchInventory interface {
	// GetInstances returns the machines that the cloud knows, by id. A machine that it
	// does not know is missing in the result. With an error, those that were read may be
	// returned.
	GetInstances(ctx context.Context, ids []string) (map[string]Instance, error)

	// UpdateInstancesTags sets the same tags on each machine, and returns the
	// error of each that was not tagged, by id.
	UpdateInstancesTags(ctx context.Context, ids []string, tags map[string]string) map[string]error
}

// A Notices is a queue of what a cloud announces. It is safe for concurrent use.
type Notices interface {
	// Receive waits for messages, for some seconds at most, and returns none if there are none.
	// A message that is not deleted is returned again after a while. It is one of a queue that
	// other programs write to: what cannot be read has an Err, and no notices.
	Receive(ctx context.Context) ([]Message, error)

	// Delete removes messages for good.
	Delete(ctx context.Context, messages []Message) error
}

// A Message is one message of [Notices].
type Message struct {
	// Receipt is what the queue needs to delete the message.
	Receipt string
	// Notices are what the message announces; none if it is of no interest.
	Notices []Notice
	// Err is why the message cannot be read.
	Err error
}
