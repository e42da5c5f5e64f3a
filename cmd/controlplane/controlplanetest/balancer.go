package controlplanetest

import (
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Balancer is one address for the replicas that are alive, each connection to another one.
// While there is none, it closes connections at once. It is safe for concurrent use.
type Balancer struct {
	listener net.Listener
	// idle, if not 0, is how long a connection may carry nothing, in nanoseconds.
	idle atomic.Int64

	mu       sync.Mutex
	replicas []string
	next     int
	open     map[net.Conn]string // by the replica that it leads to
}

// StartBalancer returns a balancer without a replica, which ends with the test.
func StartBalancer(tb testing.TB) *Balancer {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	check(tb, err)
	b := &Balancer{listener: listener, open: map[net.Conn]string{}}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() { b.forward(client) })
		}
	})
	tb.Cleanup(func() {
		_ = listener.Close()
		for _, address := range b.alive() {
			b.Remove(address)
		}
		group.Wait()
	})
	return b
}

// Address returns host:port of the listener.
func (b *Balancer) Address() string { return b.listener.Addr().String() }

// CloseIdle closes connections made from now on once they have carried nothing for that
// time. Zero: they stay.
func (b *Balancer) CloseIdle(after time.Duration) { b.idle.Store(int64(after)) }

func (b *Balancer) alive() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.replicas)
}

// Add has connections made from now on lead to the replica as well.
func (b *Balancer) Add(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replicas = append(b.replicas, address)
}

// Remove takes a replica out and breaks its connections.
func (b *Balancer) Remove(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replicas = slices.DeleteFunc(b.replicas, func(a string) bool { return a == address })
	for conn, to := range b.open {
		if to == address {
			_ = conn.Close()
		}
	}
}

// choose returns a replica for the connection, none while there is none.
func (b *Balancer) choose(client net.Conn) (address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.replicas) == 0 {
		return ""
	}
	b.next++
	address = b.replicas[b.next%len(b.replicas)]
	b.open[client] = address
	return address
}

func (b *Balancer) forward(accepted net.Conn) {
	defer func() {
		_ = accepted.Close()
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.open, accepted)
	}()
	address := b.choose(accepted)
	if address == "" {
		return
	}
	replica, err := (&net.Dialer{Timeout: 10 * time.Second}).Dial("tcp", address)
	if err != nil {
		return
	}
	client := accepted
	var both sync.WaitGroup
	var idle *time.Timer
	if most := time.Duration(b.idle.Load()); most > 0 {
		idle = time.AfterFunc(most, func() { _ = accepted.Close() })
		defer idle.Stop()
		client, replica = used{client, idle, most}, used{replica, idle, most}
	}
	for _, way := range [][2]net.Conn{{client, replica}, {replica, client}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = client.Close()
			_ = replica.Close()
		})
	}
	both.Wait()
}

// used is a connection that puts the end of an idle one off.
type used struct {
	net.Conn

	idle *time.Timer
	most time.Duration
}

// Read implements net.Conn.
func (u used) Read(p []byte) (int, error) {
	n, err := u.Conn.Read(p)
	if n > 0 {
		u.idle.Reset(u.most)
	}
	return n, err
}
