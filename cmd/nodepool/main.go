// Command nodepool is the node-pool operator: it keeps machines that were booted once and
// stopped, and starts them when pods need them. "nodepool --help" lists its settings. With
// --cloud-provider=local the machines are processes beside it, for trying a pool on a laptop.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/kubeaccess"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/operator"
)

func main() { program.Main(command()) }

// options are the flags.
type options struct {
	metrics, health, kubeconfig, namespace, logLevel string
	elect                                            bool
	cluster, endpoint, ca, cidr                      string
	provider, region, directory, machines, queue     string
	stop                                             time.Duration
	qps, burst                                       float64
}

func command() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use: "nodepool", Short: "Keep machines that were booted once and stopped, and start them when pods need them", Args: program.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			w, err := o.operator(c.Context(), c.OutOrStdout())
			if err != nil {
				return &program.UsageError{Err: err}
			}
			return program.Start(c.Context(), w.Logger, w)
		},
	}
	f := root.Flags()
	o.shared(f)
	program.AddressFlags(f, &o.health, &o.metrics, ":8081", ":8080")
	program.LeaderElectFlag(f, &o.elect)
	f.DurationVar(&o.stop, "graceful-shutdown-timeout", 30*time.Second, "how long the end may take")
	program.NamespaceFlag(f, &o.namespace, operator.Namespace, "POD_NAMESPACE")
	root.AddCommand(manifestsCommand(), planCommand(), simulateCommand(), localMachineCommand())
	program.Bind(root, "STRATOS_", os.LookupEnv)
	return root
}

// shared adds the flags that every command has which looks at a cluster and a cloud.
func (o *options) shared(f *pflag.FlagSet) {
	f.StringVar(&o.cluster, "cluster-name", "", "name of the cluster, unique in the account; required")
	f.StringVar(&o.endpoint, "cluster-endpoint", "", "URL of the API server that machines join, with https")
	f.StringVar(&o.ca, "cluster-ca", "", "certificate of the API server's authority, PEM as base64")
	f.StringVar(&o.cidr, "cluster-cidr", "", "addresses of the cluster's Services, such as 10.100.0.0/16")
	f.StringVar(&o.provider, "cloud-provider", "aws", "aws, local for machines that are processes of this one, or fake for a cloud in memory")
	f.StringVar(&o.region, "region", "", "region of classes that name none; default: that of the AWS environment, or "+operator.LocalRegion)
	f.StringVar(&o.queue, "interruption-queue", "", queueUsage)
	o.localFlags(f)
	f.Float64Var(&o.qps, "aws-rate-limit-qps", 1, "multiplies the rates of EC2 that are kept to; at least 0.1")
	f.Float64Var(&o.burst, "aws-rate-limit-burst", 1, "multiplies the bursts of EC2 that are kept to; at least 0.1")
	program.KubeconfigFlag(f, &o.kubeconfig)
	program.LogLevelFlag(f, &o.logLevel)
}

func (o options) operator(ctx context.Context, log io.Writer) (*operator.Operator, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	logger, err := program.NewLogger(log, o.logLevel)
	if err != nil {
		return nil, err
	}
	config, err := kubeaccess.Config(o.kubeconfig, logger)
	if err != nil {
		return nil, err
	}
	if o.provider == "local" {
		o.joinLocally()
	}
	open, region, err := o.cloud(ctx)
	if err != nil {
		return nil, err
	}
	var platform nodes.Platform // of EC2
	if o.provider == "local" {
		platform = nodes.Zoned(operator.LocalCloud, nil)
	}
	var notices cloud.Notices
	if o.queue != "" {
		if notices, err = (operator.EC2{}).Notices(ctx, region, o.queue); err != nil {
			return nil, err
		}
	}
	return &operator.Operator{
		Notices:         notices,
		Platform:        platform,
		Kubernetes:      config,
		Namespace:       o.namespace,
		Alone:           !o.elect,
		ClusterName:     o.cluster,
		ClusterEndpoint: o.endpoint,
		ClusterCA:       o.ca,
		ClusterCIDR:     o.cidr,
		Region:          region,
		OpenRegion:      open,
		Address:         o.health,
		MetricsAddress:  o.metrics,
		StopTimeout:     o.stop,
		Instance:        instance(),
		Logger:          logger,
	}, nil
}

// instance names this process: its pod or its host, and what no other process there has.
func instance() string {
	host, _ := os.Hostname() // only a name for people
	return cmp.Or(os.Getenv("POD_NAME"), host, "stratos") + "_" + strings.ToLower(rand.Text()[:10])
}

// opener opens a region of a cloud.
type opener = func(ctx context.Context, region string, called operator.Called) (operator.Region, error)

// cloud returns how the regions of the provider are opened, and its region of classes that
// name none.
func (o options) cloud(ctx context.Context) (open opener, region string, err error) {
	switch o.provider {
	case "aws":
		ec2 := operator.EC2{QPS: o.qps, Burst: o.burst}
		if region = o.region; region == "" {
			region, err = ec2.Home(ctx)
		}
		return ec2.Open, region, err
	case "local":
		local, err := o.local()
		return local.Open, cmp.Or(o.region, operator.LocalRegion), err
	default:
		return (&operator.Fake{}).Open, cmp.Or(o.region, "fake"), nil
	}
}

const queueUsage = "URL of a queue of SQS with the events of EventBridge that announce the end of machines; needs --cloud-provider=aws"

// validate returns an error for each flag that is wrong, joined.
func (o options) validate() error {
	errs := []error{
		o.validateCluster(), o.validateLocal(), program.CheckAddresses(o.health, o.metrics), program.CheckLease(o.namespace, o.elect),
	}
	wrong := func(flag, value, must string) {
		errs = append(errs, fmt.Errorf("--%s: is %q, must be %s", flag, program.Shown(value), must))
	}
	if !slices.Contains([]string{"aws", "local", "fake"}, o.provider) {
		wrong("cloud-provider", o.provider, "aws, local or fake")
	}
	if o.queue != "" && o.provider != "aws" {
		wrong("interruption-queue", o.queue, "empty with --cloud-provider="+o.provider)
	}
	for flag, value := range map[string]float64{"aws-rate-limit-qps": o.qps, "aws-rate-limit-burst": o.burst} {
		if value < 0.1 {
			wrong(flag, strconv.FormatFloat(value, 'g', -1, 64), "at least 0.1")
		}
	}
	if o.stop <= 0 {
		wrong("graceful-shutdown-timeout", o.stop.String(), "more than 0s")
	}
	return errors.Join(errs...)
}

// Names of clusters, regions and queues in AWS.
var (
	namePattern   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)
	regionPattern = regexp.MustCompile(`^[a-z0-9-]+$`)
	// queuePattern is the path of a queue: its account and its name.
	queuePattern = regexp.MustCompile(`^/[0-9]{12}/[A-Za-z0-9_-]{1,80}(\.fifo)?$`)
)

// validateCluster returns an error for each wrong flag that manifests has, too, joined.
func (o options) validateCluster() error {
	var errs []error
	wrong := func(flag, value, must string) {
		errs = append(errs, fmt.Errorf("--%s: is %q, must be %s", flag, program.Shown(value), must))
	}
	if o.cluster == "" {
		errs = append(errs, errors.New("--cluster-name: is not set, must be the name of the cluster, unique in the account"))
	} else if !namePattern.MatchString(o.cluster) {
		wrong("cluster-name", o.cluster, "the name of the cluster, unique in the account: at most 100 letters, digits, -, _ and .")
	}
	if u, err := url.Parse(o.endpoint); o.endpoint != "" && (err != nil || u.Scheme != "https" || !program.HasHost(u) || u.User != nil) {
		wrong("cluster-endpoint", o.endpoint, "a URL with https, without user")
	}
	if text, err := base64.StdEncoding.DecodeString(o.ca); o.ca != "" && (err != nil || !x509.NewCertPool().AppendCertsFromPEM(text)) {
		wrong("cluster-ca", "(hidden)", "a certificate as PEM in base64")
	}
	if prefix, err := netip.ParsePrefix(o.cidr); o.cidr != "" && (err != nil || prefix != prefix.Masked()) {
		wrong("cluster-cidr", o.cidr, "a network such as 10.100.0.0/16, no bits set behind the prefix")
	}
	if u, err := url.Parse(o.queue); o.queue != "" &&
		(err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || !queuePattern.MatchString(u.Path)) {
		wrong("interruption-queue", o.queue, "the URL of a queue of SQS, such as https://sqs.eu-west-1.amazonaws.com/123456789012/notices")
	}
	if o.region != "" && !regionPattern.MatchString(o.region) {
		wrong("region", o.region, "a region such as eu-central-1")
	}
	return errors.Join(errs...)
}

// checked are manifests with flags that the program would take.
type checked struct{ manifests *operator.Manifests }

func (c checked) YAML() (string, error) {
	m := c.manifests
	o := options{
		cluster: m.ClusterName, endpoint: m.ClusterEndpoint, ca: m.ClusterCA, cidr: m.ClusterCIDR,
		region: m.Region, queue: m.InterruptionQueue,
	}
	err := o.validateCluster()
	if m.Region == "" {
		err = errors.Join(err, errors.New("--region: is not set, must be a region such as eu-central-1"))
	}
	if err != nil {
		return "", err
	}
	return m.YAML()
}

func manifestsCommand() *cobra.Command {
	var m operator.Manifests
	c := program.ManifestsCommand("Print definitions, rights and Deployment as YAML for kubectl apply --server-side -f -", checked{&m})
	program.ImageFlag(c.Flags(), &m.Image, "nodepool")
	c.Flags().StringVar(&m.ClusterName, "cluster-name", "", "name of the cluster, unique in the account; required")
	c.Flags().StringVar(&m.ClusterEndpoint, "cluster-endpoint", "", "URL of the API server that machines join")
	c.Flags().StringVar(&m.ClusterCA, "cluster-ca", "", "certificate of the API server's authority, PEM as base64")
	c.Flags().StringVar(&m.ClusterCIDR, "cluster-cidr", "", "addresses of the cluster's Services")
	c.Flags().StringVar(&m.Region, "region", "", "region of classes that name none; required")
	c.Flags().StringVar(&m.InterruptionQueue, "interruption-queue", "", queueUsage)
	return c
}
