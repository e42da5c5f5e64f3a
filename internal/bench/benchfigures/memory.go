package benchfigures

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Memory is what of a process is in memory, in bytes: now, and at most since its start.
type Memory struct{ Resident, Peak float64 }

// MemoryOf reads the memory of the process with this ID, where that is Linux. A process that has
// ended, and was not waited for, has none, which is an error.
func MemoryOf(pid int) (Memory, error) {
	path := filepath.Join("/proc", strconv.Itoa(pid), "status")
	data, err := os.ReadFile(path)
	if err != nil {
		return Memory{}, err
	}
	field := func(name string) (float64, error) {
		for line := range strings.Lines(string(data)) {
			text, ok := strings.CutPrefix(line, name+":")
			if !ok {
				continue
			}
			kilobytes, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", path, err)
			}
			return kilobytes * 1024, nil
		}
		return 0, fmt.Errorf("%s: no %s", path, name)
	}
	resident, noResident := field("VmRSS")
	peak, noPeak := field("VmHWM")
	return Memory{resident, peak}, errors.Join(noResident, noPeak)
}
