//trueup:pure

package cloud

// State is the pool's use of a machine. It is written on the machine's Node and, as a
// tag, on the machine.
type State string

// The states of a machine. A deleted machine has none.
const (
	// StateWarmup: launched, before its first stop.
	StateWarmup State = "warmup"
	// StateStandby: stopped, ready to be started.
	StateStandby State = "standby"
	// StateRunning: started, open for pods.
	StateRunning State = "running"
	// StateTerminating: leaving use, back to standby or for good.
	StateTerminating State = "terminating"
)

func (s State) valid() bool {
	switch s {
	case StateWarmup, StateStandby, StateRunning, StateTerminating:
		return true
	default:
		return false
	}
}

// CheckTransition returns a [TransitionError] if the machine may not change from one
// state to the other. A machine without a state may enter warmup. Staying is no
// transition.
func CheckTransition(machine string, from, to State) error {
	if from == to {
		return nil
	}
	switch from {
	case "":
		if to == StateWarmup {
			return nil
		}
	case StateWarmup:
		if to == StateStandby || to == StateTerminating {
			return nil
		}
	case StateStandby:
		if to == StateRunning || to == StateTerminating {
			return nil
		}
	case StateRunning:
		if to == StateTerminating || to == StateStandby {
			return nil
		}
	case StateTerminating:
		if to == StateStandby || to == StateRunning {
			return nil
		}
	}
	return &TransitionError{Machine: machine, From: from, To: to}
}
