package podtest

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// network is a bridge of this machine, to which each pod has a link.
type network struct {
	bridge string
	host   netip.Addr // of this machine

	mu   sync.Mutex
	last netip.Addr
	made int
}

// networks is how many this process has made.
var networks atomic.Int32

// newNetwork makes a bridge, which is named after this process, as are its namespaces.
func newNetwork() (*network, error) {
	if os.Getuid() != 0 {
		return nil, fmt.Errorf("the user is %d", os.Getuid())
	}
	removeAbandoned()
	number, pid := int(networks.Add(1))-1, os.Getpid()
	host := netip.AddrFrom4([4]byte{10, byte(64 + pid%190), byte(pid/190 + number*50), 1}) //nolint:gosec // any byte will do
	n := &network{bridge: fmt.Sprintf("tu%d%c", pid, 'a'+rune(number%26)), host: host, last: host}
	for _, command := range [][]string{
		{"link", "add", n.bridge, "type", "bridge"}, {"addr", "add", host.String() + "/24", "dev", n.bridge}, {"link", "set", n.bridge, "up"},
	} {
		if err := ip(command...); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// removeAbandoned removes what processes that were killed have left.
func removeAbandoned() {
	for pattern, kind := range map[string]string{"/run/netns/tu*": "netns", "/sys/class/net/tu*": "link"} {
		left, err := filepath.Glob(pattern)
		if err != nil {
			continue
		}
		for _, path := range left {
			var pid int
			name := filepath.Base(path)
			if _, err := fmt.Sscanf(name, "tu%d", &pid); err != nil {
				continue // of another program
			}
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); os.IsNotExist(err) {
				_ = ip(kind, "del", name) // the other process that removes it has
			}
		}
	}
}

func (n *network) remove() { _ = ip("link", "del", n.bridge) } // the links of pods end with their namespaces

// link is the network of one pod.
type link struct {
	namespace string
	address   netip.Addr
}

// add makes the network of a pod.
func (n *network) add() (*link, error) {
	n.mu.Lock()
	n.last = n.last.Next()
	if n.last.As4()[3] == 255 {
		n.last = n.host.Next()
	}
	n.made++
	l, outside := &link{namespace: fmt.Sprintf("%s-%d", n.bridge, n.made), address: n.last}, fmt.Sprintf("%s-%d", n.bridge, n.made)
	n.mu.Unlock()
	for _, command := range [][]string{
		{"netns", "add", l.namespace},
		{"link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", l.namespace},
		{"link", "set", outside, "master", n.bridge, "up"},
		{"-n", l.namespace, "addr", "add", l.address.String() + "/24", "dev", "eth0"},
		{"-n", l.namespace, "link", "set", "eth0", "up"},
		{"-n", l.namespace, "link", "set", "lo", "up"},
		{"-n", l.namespace, "route", "add", "default", "via", n.host.String()},
	} {
		if err := ip(command...); err != nil {
			l.remove()
			return nil, err
		}
	}
	return l, nil
}

func (l *link) remove() { _ = ip("netns", "del", l.namespace) } // it is not there, or this machine says why elsewhere

// run runs a command in the network of the pod until it ends, and calls started once it runs.
// The command gets a thread of its own: it is killed when that ends.
func (l *link) run(command *exec.Cmd, started func()) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is of another network
		result <- func() error {
			namespace, err := os.Open("/run/netns/" + l.namespace)
			if err != nil {
				return err
			}
			err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET)
			namespace.Close() //nolint:errcheck // nothing was written
			if err != nil {
				return fmt.Errorf("setns %s: %w", l.namespace, err)
			}
			if err := command.Start(); err != nil {
				return err
			}
			started()
			return command.Wait()
		}()
	}()
	return <-result
}

func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput() //nolint:noctx // it ends at once
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Forward lets pods reach a port of this machine's 127.0.0.1 at [Node.Address], until the test
// ends.
func (n *Node) Forward(tb testing.TB, port int) {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", net.JoinHostPort(n.Address(), strconv.Itoa(port)))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { listener.Close() }) //nolint:errcheck // nothing is written
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go forward(from, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		}
	}()
}

// forward copies both ways until one of the two ends.
func forward(from net.Conn, address string) {
	defer from.Close()                  //nolint:errcheck // the other side has seen what came
	to, err := net.Dial("tcp", address) //nolint:noctx // it ends with from
	if err != nil {
		return
	}
	defer to.Close() //nolint:errcheck // as above
	go func() {
		_, _ = io.Copy(to, from)
		to.Close() //nolint:errcheck,gosec // as above
	}()
	_, _ = io.Copy(from, to)
}
