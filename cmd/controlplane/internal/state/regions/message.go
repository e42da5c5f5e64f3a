package regions

import ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"

// state is DeploymentState, SentinelState or CiliumNetworkPolicyState.
type state any

// newState returns an empty message for a collection.
func newState(collection string) state {
	switch collection {
	case sentinels:
		return &ctrlv1.SentinelState{}
	case policies:
		return &ctrlv1.CiliumNetworkPolicyState{}
	}
	return &ctrlv1.DeploymentState{}
}

// fill sets message to the desired state, without a version. It returns the reason
// if it cannot.
func fill(message state, desired string, spec []byte) (reason string) {
	var of string
	switch message.(type) {
	case *ctrlv1.DeploymentState:
		of = deployments
	case *ctrlv1.SentinelState:
		of = sentinels
	case *ctrlv1.CiliumNetworkPolicyState:
		of = policies
	}
	content, reason := decode(of, desired, spec)
	if reason == "" {
		set(message, content, 0)
	}
	return reason
}

// set puts an order into the oneof of a message.
func set(message state, order any, version uint64) {
	switch m := message.(type) {
	case *ctrlv1.DeploymentState:
		m.Version = version
		switch o := order.(type) {
		case *ctrlv1.ApplyDeployment:
			m.State = &ctrlv1.DeploymentState_Apply{Apply: o}
		case *ctrlv1.DeleteDeployment:
			m.State = &ctrlv1.DeploymentState_Delete{Delete: o}
		}
	case *ctrlv1.SentinelState:
		m.Version = version
		switch o := order.(type) {
		case *ctrlv1.ApplySentinel:
			m.State = &ctrlv1.SentinelState_Apply{Apply: o}
		case *ctrlv1.DeleteSentinel:
			m.State = &ctrlv1.SentinelState_Delete{Delete: o}
		}
	case *ctrlv1.CiliumNetworkPolicyState:
		m.Version = version
		switch o := order.(type) {
		case *ctrlv1.ApplyCiliumNetworkPolicy:
			m.State = &ctrlv1.CiliumNetworkPolicyState_Apply{Apply: o}
		case *ctrlv1.DeleteCiliumNetworkPolicy:
			m.State = &ctrlv1.CiliumNetworkPolicyState_Delete{Delete: o}
		}
	}
}

// setMarker puts one of the markers into the oneof of a message.
func setMarker(message state, synced *ctrlv1.Synced, bookmark *ctrlv1.Bookmark) {
	switch m := message.(type) {
	case *ctrlv1.DeploymentState:
		if m.State = (&ctrlv1.DeploymentState_Synced{Synced: synced}); synced == nil {
			m.State = &ctrlv1.DeploymentState_Bookmark{Bookmark: bookmark}
		}
	case *ctrlv1.SentinelState:
		if m.State = (&ctrlv1.SentinelState_Synced{Synced: synced}); synced == nil {
			m.State = &ctrlv1.SentinelState_Bookmark{Bookmark: bookmark}
		}
	case *ctrlv1.CiliumNetworkPolicyState:
		if m.State = (&ctrlv1.CiliumNetworkPolicyState_Synced{Synced: synced}); synced == nil {
			m.State = &ctrlv1.CiliumNetworkPolicyState_Bookmark{Bookmark: bookmark}
		}
	}
}
