// Package ctrlv1 is the wire contract between the control plane and the agents
// of clusters: the messages of ctrl.v1.ClusterService. The .proto files beside
// this one document each field; "make generate" makes the code from them.
//
// Numbers and names are binding: what is not listed in contract_test.go is not
// on the wire. Fields numbered 10 and above in watch requests, and in reports,
// are an extension that a client opts into; peers that do not know them
// interoperate.
package ctrlv1
