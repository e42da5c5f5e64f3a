package main

import (
	"context"
	"fmt"
	"strings"
)

// carefulPeer calls CreateOrUpdate with closures that compare before they write.
const carefulPeer = "CreateOrUpdate_derivative"

// namespaced is a contender's name as that of a namespace.
func namespaced(name string) string {
	return strings.ToLower(strings.ReplaceAll(name, "_", "-"))
}

// startPeers starts every peer. What stop ends is valid with an error.
func (b *bench) startPeers(ctx context.Context) (peers []contender, stop func(), err error) {
	stop = func() {
		for _, peer := range peers {
			peer.stop()
		}
	}
	add := func(peer contender, failed error) {
		if err == nil {
			err = failed
		}
		if failed == nil {
			peers = append(peers, peer)
		}
	}
	for _, concurrency := range []int{4, 1} {
		peer, failed := newFlux(b.side(fmt.Sprintf("flux_%d", concurrency)), concurrency)
		add(peer, failed)
	}
	for _, concurrency := range []int{8, 1} {
		peer, failed := newPlain(b.side(fmt.Sprintf("plain_%d", concurrency)), concurrency)
		add(peer, failed)
	}
	for _, name := range []string{"CreateOrUpdate", carefulPeer} {
		peer, failed := startCreateOrUpdate(ctx, b.side(name), name == carefulPeer)
		add(peer, failed)
	}
	return peers, stop, err
}
