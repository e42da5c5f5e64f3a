// Package specs validates the messages ApplyDeployment, ApplySentinel and
// ApplyCiliumNetworkPolicy of ctrl.v1.
//
// The control plane refuses by these rules what an agent could not run, when it is put;
// an agent refuses by the same rules what an older control plane sends. What depends on
// the agent, such as its region and what it has decrypted, the agent checks in addition.
package specs
