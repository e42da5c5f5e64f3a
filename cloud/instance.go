package cloud

import "time"

// InstanceState is the state of a machine as the cloud reports it.
type InstanceState string

// The states of a machine. A provider reports a state that it cannot translate
// as InstanceUnknown.
const (
	InstancePending      InstanceState = "pending"
	InstanceRunning      InstanceState = "running"
	InstanceStopping     InstanceState = "stopping"
	InstanceStopped      InstanceState = "stopped"
	InstanceShuttingDown InstanceState = "shutting-down"
	InstanceTerminated   InstanceState = "terminated"
	InstanceUnknown      InstanceState = "unknown"
)

// Ending reports whether the machine is terminated or on its way there.
func (s InstanceState) Ending() bool {
	return s == InstanceShuttingDown || s == InstanceTerminated
}

// Powered reports whether the machine runs or is about to run.
func (s InstanceState) Powered() bool {
	return s == InstancePending || s == InstanceRunning
}

// An Instance is a machine as the cloud reports it.
type Instance struct {
	ID               string
	State            InstanceState
	PrivateIP        string // empty if it has none
	PublicIP         string // empty if it has none
	LaunchTime       time.Time
	Tags             map[string]string
	InstanceType     string
	SubnetID         string
	AvailabilityZone string
}

// LaunchConfig describes the machine to create.
type LaunchConfig struct {
	// Token makes the launch idempotent; see [Machines]. At most 64 characters
	// of ASCII. Required.
	Token string

	// ImageID and InstanceType are the provider's names. Required.
	ImageID, InstanceType string

	// SubnetID decides the network and the zone. Empty leaves both to the
	// provider's default network.
	SubnetID string

	// SecurityGroupIDs are the groups of the first network interface. Empty means
	// the network's default group.
	SecurityGroupIDs []string

	// IAMInstanceProfile is the name or the ARN of a profile. Empty means none.
	IAMInstanceProfile string

	// UserData is given to the machine at its first boot, not encoded.
	UserData string

	// BlockDevices replace devices of the image or add to them.
	BlockDevices []BlockDevice

	// Metadata bounds the machine's access to its own metadata.
	Metadata MetadataOptions

	// Tags are put on the machine and on its volumes, in the call that creates
	// them.
	Tags map[string]string

	// PoolName and ClusterName are for names and messages. Ownership is decided
	// by Tags alone.
	PoolName, ClusterName string
}

// A BlockDevice is a volume of a new machine.
type BlockDevice struct {
	DeviceName string // such as "/dev/xvda". Required
	VolumeSize int    // GiB. 0 means the size of the image
	VolumeType string // such as "gp3". Empty means the provider's default
	Encrypted  bool
	Iops       int // 0 means the default of the type
	Throughput int // MiB/s. 0 means the default of the type
}

// MetadataOptions bound the access of a machine to its metadata service. Empty
// fields mean the provider's default.
type MetadataOptions struct {
	HTTPEndpoint            string // "enabled" or "disabled"
	HTTPTokens              string // "required" or "optional"
	HTTPPutResponseHopLimit int    // 1 to 64. 0 means the default
	InstanceMetadataTags    string // "enabled" or "disabled"
}
