package program

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
)

// checkValues returns an error for each flag that pflag takes and no program does, joined: a
// number that is none or has no end, and nothing where a setting of [Settings] must be something.
func checkValues(flags *pflag.FlagSet) error {
	var wrong []error
	flags.VisitAll(func(f *pflag.Flag) {
		value := f.Value.String()
		if n, err := strconv.ParseFloat(value, 64); f.Value.Type() == "float64" && err == nil && (math.IsNaN(n) || math.IsInf(n, 0)) {
			wrong = append(wrong, wrongValue("--"+f.Name, f, value, nil))
		}
		if must := annotation(f, annotationMust); must != "" && f.Changed && value == "" {
			wrong = append(wrong, fmt.Errorf(`--%s: is "", must be %s`, f.Name, must))
		}
	})
	return errors.Join(wrong...)
}

// Unreadable returns what is wrong with a setting that names a file which cannot be read.
func Unreadable(path string, cause error) error {
	return fmt.Errorf("is %q, must be a file that can be read: %w", Shown(path), Reason(cause))
}

// Reason returns why a file cannot be used, without its path and the call that failed.
func Reason(err error) error {
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		return failed.Err
	}
	return err
}

// CheckFolder returns an error if a folder can neither be at the path nor be made there,
// because a file is in its place or above it. An empty path is none.
func CheckFolder(path string) error {
	at, err := os.Stat(path)
	if errors.Is(err, syscall.ENOTDIR) || err == nil && !at.IsDir() {
		return fmt.Errorf("is %q, must be a folder, not a file", Shown(path))
	}
	return nil
}

// MakeFolder makes the folder of a setting unless it is there, and returns an error if it cannot be made or written.
// An empty path is none.
func MakeFolder(setting, path string) error {
	if path == "" {
		return nil
	}
	err := os.MkdirAll(path, 0o700)
	if err == nil {
		var probe *os.File
		if probe, err = os.CreateTemp(path, ".written-"); err == nil {
			err = errors.Join(probe.Close(), os.Remove(probe.Name()))
		}
	}
	if err != nil {
		return fmt.Errorf("%s: is %q, must be a folder that can be made and written: %w", setting, Shown(path), err)
	}
	return nil
}

// SameAddress reports whether a process that listens on one address cannot listen on the
// other. Port 0 is a free one.
func SameAddress(a, b string) bool {
	hostA, portA, _ := net.SplitHostPort(a)
	hostB, portB, _ := net.SplitHostPort(b)
	m, err := strconv.ParseUint(portA, 10, 16)
	n, wrong := strconv.ParseUint(portB, 10, 16)
	if err != nil || wrong != nil || m != n || n == 0 {
		return false
	}
	ipA, ipB := hostAddress(hostA), hostAddress(hostB)
	if !ipA.IsValid() || !ipB.IsValid() {
		return strings.EqualFold(hostA, hostB)
	}
	covers := func(a, b netip.Addr) bool { return a.IsUnspecified() && (a.Is6() || b.Is4()) }
	return ipA == ipB || covers(ipA, ipB) || covers(ipB, ipA)
}

// hostAddress returns what a host of a listener stands for, and none for a name.
func hostAddress(host string) netip.Addr {
	switch {
	case host == "":
		return netip.IPv6Unspecified()
	case strings.EqualFold(host, "localhost"):
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	return address.Unmap()
}
