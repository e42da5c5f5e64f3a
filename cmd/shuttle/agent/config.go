package agent

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// Config has the settings.
type Config struct {
	StarbaseURL       *url.URL
	RequestTimeout    time.Duration // of one attempt to reach Starbase
	ClusterID         string        // UUID
	Region            string
	TokenFile         string
	TokenSecret       types.NamespacedName // where renewed tokens are kept; zero: none is renewed
	ReconcileInterval time.Duration
	Stream            bool // Starbase names new versions on a stream
	SnapshotInterval  time.Duration
	CapacityInterval  time.Duration
	HealthAddress     string // of /healthz and /readyz
	MetricsAddress    string // of /metrics; empty: HealthAddress
	SoftLimit         int
	Gateway           types.NamespacedName // that routes attach to
	GatewayService    types.NamespacedName // zero: no load balancer to size
	ImagePullSecrets  []string             // of the namespaces of projects
	ClusterRanges     []netip.Prefix       // public ones, of its pods and nodes
	SnapshotWALDir    string
	MaxDeletePercent  int
	DNS               DNSSelector
	PodSecurity       isolation.Level // the loosest that a service may ask for
	LeaderElection    bool
	Namespace         string // of the Lease and of what the agent remembers; empty: starform-system
	WakeOnDrift       bool
}

// rules returns the settings that decide about objects.
func (c *Config) rules() Rules {
	return Rules{
		DNS: c.DNS, PodSecurity: c.PodSecurity, Gateway: c.Gateway, ImagePullSecrets: c.ImagePullSecrets, ClusterRanges: c.ClusterRanges,
	}
}

// DNSSelector selects the pods that answer DNS.
type DNSSelector struct {
	Namespace string
	Labels    map[string]string
}

// VariableError is an environment variable that is wrong. It shows the value, unless that may
// hold a password: see [program.Shown].
type VariableError struct {
	Variable, Value, Want string
}

func (e *VariableError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s: is not set, must be %s", e.Variable, e.Want)
	}
	return fmt.Sprintf("%s: is %q, must be %s", e.Variable, e.Value, e.Want)
}

var regionPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// ReadConfig reads the settings by the names of their variables with lookup.
// The error joins a *VariableError for each that is missing or cannot be parsed.
func ReadConfig(lookup func(string) string) (Config, error) {
	r := reader{lookup: lookup}
	c := r.config()
	c.TokenFile = r.tokenFile("STARFORM_AUTH_TOKEN_FILE")
	return c, errors.Join(r.errs...)
}

// config reads everything but the token.
func (r *reader) config() Config {
	c := Config{
		StarbaseURL:       r.url("STARFORM_STARBASE_URL"),
		RequestTimeout:    r.duration("STARFORM_REQUEST_TIMEOUT", 30*time.Second),
		ClusterID:         r.clusterID(),
		Region:            r.region(),
		TokenSecret:       r.namespacedName("STARFORM_AUTH_TOKEN_SECRET", ""),
		ReconcileInterval: r.duration("STARFORM_RECONCILE_INTERVAL", 30*time.Second),
		Stream:            r.transport("STARFORM_TRANSPORT"),
		SnapshotInterval:  r.duration("STARFORM_SNAPSHOT_INTERVAL", time.Minute),
		CapacityInterval:  r.duration("STARFORM_CAPACITY_INTERVAL", time.Minute),
		HealthAddress:     r.address("STARFORM_METRICS_ADDR", ":8080"),
		MetricsAddress:    r.address("STARFORM_METRICS_BIND_ADDRESS", ""),
		SoftLimit:         r.integer("STARFORM_SOFT_LIMIT", 1000, 1, 1_000_000),
		Gateway:           r.namespacedName("STARFORM_GATEWAY", gatewayNamespace+"/"+gatewayName),
		GatewayService:    r.namespacedName("STARFORM_GATEWAY_SERVICE", ""),
		ImagePullSecrets:  r.names("STARFORM_IMAGE_PULL_SECRETS"),
		ClusterRanges:     r.ranges("STARFORM_CLUSTER_RANGES"),
		SnapshotWALDir:    r.folder("STARFORM_SNAPSHOT_WAL_DIR"),
		MaxDeletePercent:  r.integer("STARFORM_MAX_DELETE_PERCENT", 10, 0, 100),
		DNS:               r.dns("STARFORM_DNS_SELECTOR", "kube-system/k8s-app=kube-dns"),
		PodSecurity:       r.podSecurity("STARFORM_POD_SECURITY"),
		LeaderElection:    r.boolean("STARFORM_LEADER_ELECTION", false),
		WakeOnDrift:       r.boolean("STARFORM_WAKE_ON_DRIFT", true),
	}
	allowed := r.boolean("STARFORM_ALLOW_HTTP", false)
	if to := c.StarbaseURL; to != nil && to.Scheme == "http" && !allowed && !program.Encrypted(to.String()) {
		r.fail("STARFORM_STARBASE_URL", program.WantEncrypted("STARFORM_ALLOW_HTTP"))
	}
	if program.SameAddress(c.HealthAddress, c.MetricsAddress) {
		r.fail("STARFORM_METRICS_BIND_ADDRESS", program.OtherAddress)
	}
	return c
}

// reader parses variables and collects their errors.
type reader struct {
	lookup func(string) string
	errs   []error
}

func (r *reader) fail(variable, want string) {
	r.errs = append(r.errs, &VariableError{Variable: variable, Value: program.Shown(r.lookup(variable)), Want: want})
}

func (r *reader) matching(variable string, ok func(string) bool, want string) string {
	v := r.lookup(variable)
	if v == "" || !ok(v) {
		r.fail(variable, want)
	}
	return v
}

func (r *reader) tokenFile(variable string) string {
	const want = "a file that can be read and holds the token, one word"
	v := r.lookup(variable)
	if v == "" {
		r.fail(variable, want)
	} else if _, err := program.ReadToken(v); err != nil {
		r.fail(variable, want+": "+program.Reason(err).Error())
	}
	return v
}

func (r *reader) folder(variable string) string {
	v := r.lookup(variable)
	if program.CheckFolder(v) != nil {
		r.fail(variable, "a folder, not a file")
	}
	return v
}

func (r *reader) clusterID() string {
	return r.matching("STARFORM_CLUSTER_ID", starbase.ValidUUID, "a UUID in lower case")
}

func (r *reader) region() string {
	return r.matching("STARFORM_REGION", regionPattern.MatchString, "a region like nyc3")
}

func (r *reader) url(variable string) *url.URL {
	u, err := url.Parse(r.lookup(variable))
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || !program.HasHost(u) || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" {
		r.fail(variable, "a URL like https://starbase.example.com, without user or query")
		return nil
	}
	return u
}

func (r *reader) duration(variable string, standard time.Duration) time.Duration {
	v := r.lookup(variable)
	if v == "" {
		return standard
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < time.Second || d > time.Hour {
		r.fail(variable, "a duration from 1s to 1h")
	}
	return d
}

func (r *reader) podSecurity(variable string) isolation.Level {
	level, err := isolation.ParseLevel(r.lookup(variable))
	if err != nil {
		r.fail(variable, isolation.Want)
	}
	return level
}

func (r *reader) integer(variable string, standard, minValue, maxValue int) int {
	v := r.lookup(variable)
	if v == "" {
		return standard
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < minValue || n > maxValue {
		r.fail(variable, fmt.Sprintf("a whole number from %d to %d", minValue, maxValue))
	}
	return n
}

func (r *reader) boolean(variable string, standard bool) bool {
	on, err := strconv.ParseBool(cmp.Or(r.lookup(variable), strconv.FormatBool(standard)))
	if err != nil {
		r.fail(variable, "true or false")
	}
	return on
}

func (r *reader) transport(variable string) (stream bool) {
	switch v := r.lookup(variable); v {
	case "", "poll":
	case "stream":
		return true
	default:
		r.fail(variable, "poll or stream")
	}
	return false
}

func (r *reader) address(variable, standard string) string {
	v := cmp.Or(r.lookup(variable), standard)
	if v != "" && program.CheckAddress(v) != nil {
		r.fail(variable, "an address like :8080 or 127.0.0.1:8080")
	}
	return v
}

func (r *reader) namespacedName(variable, standard string) types.NamespacedName {
	v := cmp.Or(r.lookup(variable), standard)
	if v == "" {
		return types.NamespacedName{}
	}
	namespace, name, _ := strings.Cut(v, "/")
	if !regionPattern.MatchString(namespace) || !regionPattern.MatchString(name) {
		r.fail(variable, "namespace/name")
	}
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func (r *reader) names(variable string) []string {
	v := r.lookup(variable)
	if v == "" {
		return nil
	}
	names := strings.Split(v, ",")
	for n, name := range names {
		if len(validation.IsDNS1123Subdomain(name)) > 0 || slices.Contains(names[:n], name) {
			r.fail(variable, "names of Secrets with commas between them, each once, as in registry-a,registry-b")
			return nil
		}
	}
	return names
}

func (r *reader) ranges(variable string) []netip.Prefix {
	v := r.lookup(variable)
	if v == "" {
		return nil
	}
	var ranges []netip.Prefix
	for text := range strings.SplitSeq(v, ",") {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix != prefix.Masked() || prefix.Bits() == 0 || prefix.Addr().Is4In6() || slices.Contains(ranges, prefix) {
			r.fail(variable, "networks with commas between them, no bits set behind the prefix, each once, as in 203.0.113.0/24,2001:db8::/32")
			return nil
		}
		ranges = append(ranges, prefix)
	}
	return ranges
}

func (r *reader) dns(variable, standard string) DNSSelector {
	namespace, selector, ok := strings.Cut(cmp.Or(r.lookup(variable), standard), "/")
	set, err := labels.ConvertSelectorToLabelsMap(selector)
	if !ok || !regionPattern.MatchString(namespace) || err != nil || len(set) == 0 {
		r.fail(variable, "namespace/label=value, as in kube-system/k8s-app=kube-dns")
	}
	return DNSSelector{namespace, set}
}
