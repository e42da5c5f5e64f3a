package main

import (
	"context"
	"fmt"
	"net"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	runtimeservice "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	xds "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"
)

// controlPlane is go-control-plane: its linear cache, followed by delta streams
// over gRPC.
func controlPlane() peer { return peer{"controlplane", serveControlPlane, connectControlPlane} }

func serveControlPlane(ctx context.Context, at string, resources int) (string, func(int) error, error) {
	linear := cache.NewLinearCache(resource.RuntimeType)
	version := 0
	change := func(n int) error {
		version++
		name := fmt.Sprint(n)
		layer := &structpb.Struct{Fields: map[string]*structpb.Value{"value": structpb.NewStringValue(value(n, version))}}
		return linear.UpdateResource(name, &runtimeservice.Runtime{Name: name, Layer: layer})
	}
	for n := range resources {
		if err := change(n); err != nil {
			return "", nil, err
		}
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
	if err != nil {
		return "", nil, err
	}
	g := grpc.NewServer()
	runtimeservice.RegisterRuntimeDiscoveryServiceServer(g, xds.NewServer(ctx, linear, nil))
	go g.Serve(listener) //nolint:errcheck // it ends with the process
	return listener.Addr().String(), change, nil
}

func connectControlPlane(ctx context.Context, address string, got func(int)) error {
	return subscribe(ctx, address, "*", func(r *discovery.DeltaDiscoveryResponse) { got(len(r.GetResources())) })
}

// subscribe follows a resource, or all of them ("*"), over a connection of its own.
func subscribe(ctx context.Context, address, name string, got func(*discovery.DeltaDiscoveryResponse)) error {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the end
	stream, err := runtimeservice.NewRuntimeDiscoveryServiceClient(conn).DeltaRuntime(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&discovery.DeltaDiscoveryRequest{
		Node: &core.Node{Id: "client"}, TypeUrl: resource.RuntimeType, ResourceNamesSubscribe: []string{name},
	}); err != nil {
		return err
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		got(response)
		if err := stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: resource.RuntimeType, ResponseNonce: response.GetNonce()}); err != nil {
			return err
		}
	}
}
