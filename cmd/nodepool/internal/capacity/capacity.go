// Package capacity has what pods may use of a machine, by its type.
package capacity

import (
	"strconv"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// usable is the share of a machine's memory and processors that is planned with while no
// Node has said what the kubelet leaves to pods.
const usable = 0.8

// families are GiB of memory for each virtual processor.
//
//nolint:gochecknoglobals // a table
var families = map[string]int64{
	"c5": 2, "c5a": 2, "c6i": 2, "c7i": 2,
	"m5": 4, "m5a": 4, "m6i": 4, "m7i": 4,
	"r5": 8, "r6i": 8,
}

// burstable machines have sizes of their own: thousandths of a processor, MiB.
//
//nolint:gochecknoglobals // a table
var burstable = map[string][2]int64{
	"nano": {
		2000,
		512,
	},
	"micro":   {2000, 1024},
	"small":   {2000, 2048},
	"medium":  {2000, 4096},
	"large":   {2000, 8192},
	"xlarge":  {4000, 16384},
	"2xlarge": {8000, 32768},
}

// Known reports whether the resources of a type are known.
func Known(instanceType string) bool {
	cpu, _ := machine(instanceType)
	return cpu > 0
}

// Of returns the resources that pods may use on a machine, by its type alone, with room for
// the number of pods that a machine of the size runs. A machine of an unknown type takes
// one pod, whatever that pod needs, beside the pods of DaemonSets.
func Of(instanceType string, daemons int, maxPods *int32) demand.Resources {
	cpu, memory := machine(instanceType)
	if cpu == 0 {
		const plenty = 1 << 50
		return demand.Resources{CPU: plenty, Memory: plenty, EphemeralStorage: plenty, Pods: int64(daemons) + 1}
	}
	r := demand.Resources{CPU: int64(float64(cpu) * usable), Memory: int64(float64(memory) * usable), EphemeralStorage: 16 << 30, Pods: 29}
	if cpu >= 4000 {
		r.Pods = 58
	}
	if maxPods != nil {
		r.Pods = int64(*maxPods)
	}
	return r
}

// machine returns the thousandths of processors and the bytes of memory, 0 of an unknown type.
func machine(instanceType string) (cpu, memory int64) {
	family, size, _ := strings.Cut(instanceType, ".")
	switch {
	case family == "t3" || family == "t3a":
		known := burstable[size]
		cpu, memory = known[0], known[1]<<20
	case families[family] > 0:
		cores := processors(size)
		if strings.HasPrefix(family, "c5") && (size == "9xlarge" || size == "18xlarge") {
			cores = map[string]int64{"9xlarge": 36, "18xlarge": 72}[size]
		}
		cpu, memory = cores*1000, cores*families[family]<<30
	}
	return cpu, memory
}

// processors returns the virtual processors of a size: 2 for large, 4 for xlarge, 8 for
// 2xlarge. It is 0 for a size that is no such number.
func processors(size string) int64 {
	switch size {
	case "large":
		return 2
	case "xlarge":
		return 4
	}
	number, ok := strings.CutSuffix(size, "xlarge")
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 2 || n > 96 {
		return 0
	}
	return 4 * n
}
