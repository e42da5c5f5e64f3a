// Package ctrlv1connect serves and calls ctrl.v1.ClusterService over Connect,
// gRPC and gRPC-web. Its code is made from the .proto files by "make generate".
package ctrlv1connect
