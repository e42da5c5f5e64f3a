package regions

import ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"

// newMessage returns an empty message for a collection.
func newMessage(collection string) ctrlv1.Message {
	switch collection {
	case sentinels:
		return &ctrlv1.SentinelState{}
	case policies:
		return &ctrlv1.CiliumNetworkPolicyState{}
	}
	return &ctrlv1.DeploymentState{}
}
