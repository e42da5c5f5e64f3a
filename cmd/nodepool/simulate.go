package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/capacity"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/replay"
)

const simulateHelp = `Replay a history of pods against the settings of a pool, once for each of several
values of minStandby, and show how many pods had room at once, how long the others
waited, and what the machines cost. Nothing is read from a cluster or a cloud.

The trace is a CSV file. Its first line names the columns: arrival (a time as in
RFC 3339, or seconds), duration (such as 90s or 1h30m, or seconds), cpu and memory
(quantities that the pod requests), and, if wanted, name and count.

The settings are those of a NodePool manifest, which may have its AWSNodeClass beside
it, or those of the flags, which win over the manifest. The pool begins with minStandby
machines on standby. The value that is marked with * is that of the pool; without one,
it is the least with which 95 % of the pods wait no longer than a boot.`

const simulateExample = `  nodepool simulate -f trace.csv -p pool.yaml --instance-type m5.xlarge --price 0.192 --price-stopped 0.011 --svg pool.svg
  nodepool simulate -f trace.csv --pool-size 20 --instance-type m5.xlarge --min-standby-range 0:8 -o json`

// simulation are the flags of simulate.
type simulation struct {
	trace, manifest, standby, output, svg string
	settings                              replay.Settings
}

// simulateCommand replays a history of pods.
func simulateCommand() *cobra.Command {
	var s simulation
	c := &cobra.Command{
		Use:     "simulate -f TRACE",
		Short:   "Replay a history of pods against the settings of a pool, to choose minStandby",
		Long:    simulateHelp,
		Example: simulateExample,
		Args:    program.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return s.run(c)
		},
	}
	f := c.Flags()
	f.StringVarP(&s.trace, "file", "f", "", "the trace, a CSV file; - for the standard input; required")
	f.StringVarP(&s.manifest, "pool", "p", "", "a NodePool as YAML")
	f.StringVar(
		&s.standby,
		"min-standby-range",
		"",
		"values of minStandby to compare, as FIRST:LAST; default: 0 to half of the pool; of more than 12 values, 12 are replayed",
	)
	f.StringVarP(&s.output, "output", "o", "table", "table or json")
	f.StringVar(&s.svg, "svg", "", "file that a picture is written to")
	f.IntVar(&s.settings.Pool.Size, "pool-size", 0, "how many machines the pool may have")
	f.IntVar(&s.settings.Pool.MinStandby, "min-standby", 0, "the value of minStandby whose machines are drawn")
	f.DurationVar(&s.settings.Pool.EmptyTTL, "empty-node-ttl", 5*time.Minute, "how long a machine is empty before it is stopped")
	f.DurationVar(&s.settings.Pool.SurplusTTL, "surplus-standby-ttl", 0, "how long machines on standby above minStandby are kept; 0s for ever")
	f.StringVar(&s.settings.InstanceType, "instance-type", "", "type of the machines, such as m5.xlarge")
	f.DurationVar(&s.settings.Boot, "boot", 20*time.Second, "time from a start to a ready Node")
	f.DurationVar(&s.settings.Warmup, "warmup", 3*time.Minute, "time from a launch to standby")
	f.DurationVar(&s.settings.Stop, "stop", 30*time.Second, "time that a machine takes to stop")
	f.Float64Var(&s.settings.Price, "price", 0, "what an hour of a running machine costs")
	f.Float64Var(&s.settings.PriceStopped, "price-stopped", 0, "what an hour of a stopped machine costs: its volume")
	return c
}

func (s simulation) run(c *cobra.Command) error {
	if s.output != "table" && s.output != "json" {
		return program.Usagef("--output: is %q, must be table or json", s.output)
	}
	settings, chosen, err := s.read(c.Flags())
	if err != nil {
		return &program.UsageError{Err: err}
	}
	values, err := s.values(settings.Pool.Size)
	if err != nil {
		return &program.UsageError{Err: err}
	}
	pods, err := s.pods(c)
	if err != nil {
		return &program.UsageError{Err: err}
	}
	report, err := replay.NewReport(settings, pods, values, chosen)
	if err != nil {
		return err
	}
	if s.svg != "" {
		if err := os.WriteFile(s.svg, report.SVG(), 0o644); err != nil { //nolint:gosec // a picture for people
			return program.Usagef("--svg: is %q, must be a file that can be written: %w", program.Shown(s.svg), program.Reason(err))
		}
	}
	if s.output == "json" {
		return report.WriteJSON(c.OutOrStdout())
	}
	return report.WriteTable(c.OutOrStdout())
}

// read returns the settings, and the chosen value of minStandby or -1.
func (s simulation) read(flags *pflag.FlagSet) (settings replay.Settings, chosen int, err error) {
	settings, chosen = s.settings, -1
	if s.manifest != "" {
		file, err := os.Open(s.manifest)
		if err != nil {
			return settings, 0, fmt.Errorf("--pool: %w", program.Unreadable(s.manifest, err))
		}
		defer file.Close() //nolint:errcheck // it is only read
		of, err := replay.ReadManifest(file)
		if err != nil {
			return settings, 0, fmt.Errorf("--pool %s: %w", s.manifest, err)
		}
		chosen = of.Pool.MinStandby
		settings = of
		settings.Boot, settings.Warmup, settings.Stop = s.settings.Boot, s.settings.Warmup, s.settings.Stop
		settings.Price, settings.PriceStopped = s.settings.Price, s.settings.PriceStopped
		if flags.Changed("pool-size") {
			settings.Pool.Size = s.settings.Pool.Size
		}
		if flags.Changed("empty-node-ttl") {
			settings.Pool.EmptyTTL = s.settings.Pool.EmptyTTL
		}
		if flags.Changed("surplus-standby-ttl") {
			settings.Pool.SurplusTTL = s.settings.Pool.SurplusTTL
		}
		if flags.Changed("instance-type") {
			settings.InstanceType, settings.Capacity = s.settings.InstanceType, demand.Resources{}
		}
	}
	if flags.Changed("min-standby") {
		chosen = s.settings.Pool.MinStandby
		if chosen < 0 {
			return settings, 0, fmt.Errorf("--min-standby: is %d, must be at least 0", chosen)
		}
	}
	settings.Pool.MinStandby = max(0, chosen)
	var errs []error
	if s.trace == "" {
		errs = append(errs, errors.New("--file: is empty, must be a CSV file"))
	}
	if settings.Pool.Size < 1 {
		errs = append(errs, fmt.Errorf("--pool-size: is %d, must be at least 1, or --pool a manifest", settings.Pool.Size))
	}
	if settings.InstanceType == "" {
		errs = append(errs, errors.New("--instance-type: is empty, must be a type such as m5.xlarge"))
	} else if flags.Changed("instance-type") && !capacity.Known(settings.InstanceType) {
		errs = append(errs, fmt.Errorf(
			"--instance-type: is %q, must be a type that is known, such as m5.large, c6i.2xlarge, r5.xlarge or t3.medium",
			program.Shown(settings.InstanceType),
		))
	}
	if len(errs) == 0 {
		errs = append(errs, settings.Validate())
	}
	return settings, chosen, errors.Join(errs...)
}

// values returns the values of minStandby to compare.
func (s simulation) values(size int) ([]int, error) {
	if s.standby == "" {
		return replay.Range(0, size/2), nil
	}
	first, last, _ := strings.Cut(s.standby, ":")
	from, err := strconv.Atoi(first)
	to, wrong := strconv.Atoi(cmp.Or(last, first))
	if err != nil || wrong != nil || from < 0 || to < from || to > size {
		return nil, fmt.Errorf(
			"--min-standby-range: is %q, must be two numbers such as 0:8, from 0 to the size of the pool (%d)",
			s.standby,
			size,
		)
	}
	return replay.Range(from, to), nil
}

func (s simulation) pods(c *cobra.Command) ([]replay.Pod, error) {
	if s.trace == "-" {
		return replay.ReadTrace(c.InOrStdin())
	}
	file, err := os.Open(s.trace)
	if err != nil {
		return nil, fmt.Errorf("--file: %w", program.Unreadable(s.trace, err))
	}
	defer file.Close() //nolint:errcheck // it is only read
	pods, err := replay.ReadTrace(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.trace, err)
	}
	return pods, nil
}
