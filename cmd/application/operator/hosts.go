package operator

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/names"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// anyDomain among the allowed domains is every one.
const anyDomain = "*"

// The reasons why a host is refused.
const (
	reasonHostTaken   = "HostTaken"
	reasonHostAllowed = "HostNotAllowed"
)

var (
	errHostTaken      = errors.New("belongs to another")
	errHostNotAllowed = errors.New("is not allowed")
)

// hostReference indexes objects by their hosts. No such resource is watched.
func hostReference(host string) kube.Reference {
	return kube.Reference{Resource: schema.GroupVersionResource{Group: v1alpha1.Group, Resource: "hosts"}, Name: host}
}

// reserved returns the hosts that belong to the platform: the host of logins, the domains
// that have the hosts of apps below them, and the services.
func (s Settings) reserved() []string {
	hosts := append(slices.Clone(s.ReservedHosts), s.BaseDomain)
	for _, label := range []string{"auth", string(v1alpha1.Staging), string(v1alpha1.UAT), string(v1alpha1.Preview)} {
		hosts = append(hosts, label+"."+s.BaseDomain)
	}
	for _, allowed := range s.AllowedDomains {
		if allowed != anyDomain {
			hosts = append(hosts, "auth."+allowed)
		}
	}
	for _, service := range []string{s.KeycloakURL, s.S3Endpoint} {
		if at, err := url.Parse(service); err == nil && at.Hostname() != "" {
			hosts = append(hosts, at.Hostname())
		}
	}
	for _, host := range []string{s.Redis, s.OpenSearch} {
		if host != "" {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// below reports whether a host is in a domain.
func below(host, domain string) bool { return host == domain || strings.HasSuffix(host, "."+domain) }

// allows returns why an app may not have a host, nil if it may, without a look at other apps. domain
// is what its spec says, empty for a host that is made of names.
func (s Settings) allows(host, domain string) error {
	field := "metadata.name"
	if domain != "" {
		field = "spec.domain"
	}
	for _, reserved := range s.reserved() {
		if host == reserved || below(host, "auth."+s.BaseDomain) {
			return fmt.Errorf("%s: the host %s %w: it is reserved for the platform; choose another", field, host, errHostNotAllowed)
		}
	}
	if domain == "" {
		return nil
	}
	if below(host, string(v1alpha1.Preview)+"."+s.BaseDomain) {
		return fmt.Errorf(
			"spec.domain: the host %s %w: hosts below %s.%s are those of previews; choose another",
			host,
			errHostNotAllowed,
			v1alpha1.Preview,
			s.BaseDomain,
		)
	}
	allowed := append([]string{s.BaseDomain}, s.AllowedDomains...)
	if !slices.ContainsFunc(allowed, func(domain string) bool { return domain == anyDomain || below(host, domain) }) {
		return fmt.Errorf(
			"spec.domain: the host %s %w: it must be below %s; choose another, or ask an administrator of the platform to add its domain to ALLOWED_DOMAINS",
			host,
			errHostNotAllowed,
			strings.Join(allowed, " or "),
		)
	}
	return nil
}

// claimant is an object that wants a host.
type claimant struct {
	key types.NamespacedName
	uid types.UID
	// made is when the object was created.
	made metav1.Time
	// held is the host that is recorded as its own.
	held string
}

// hosts says which objects of one kind have which hosts. A host belongs to the first that
// wants it, until nothing of that one leads to it any more. What is recorded in a status
// outlives the process; between the decision and the record, this knows.
type hosts struct {
	mu   sync.Mutex
	held map[string]types.NamespacedName
}

// claim reports whether an object has a host, which all of these want.
func (h *hosts) claim(host string, me claimant, all []claimant) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if key, known := h.held[host]; known {
		return key == me.key
	}
	if first(host, append(slices.Clone(all), me)).uid != me.uid {
		return false
	}
	if h.held == nil {
		h.held = map[string]types.NamespacedName{}
	}
	h.held[host] = me.key
	return true
}

// keep frees the hosts of an object but one, and returns them.
func (h *hosts) keep(key types.NamespacedName, host string) (freed []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for held, by := range h.held {
		if by == key && held != host {
			delete(h.held, held)
			freed = append(freed, held)
		}
	}
	return freed
}

// first returns which of these has a host when none is known to: the recorded owner, else the
// oldest.
func first(host string, all []claimant) claimant {
	return slices.MinFunc(all, func(a, b claimant) int {
		rank := func(c claimant) int {
			if c.held == host {
				return 0
			}
			return 1
		}
		return cmp.Or(
			cmp.Compare(rank(a), rank(b)),
			a.made.Compare(b.made.Time),
			cmp.Compare(a.key.String(), b.key.String()),
			cmp.Compare(a.uid, b.uid),
		)
	})
}

// hostOf returns the host that an Application wants, and the error that it may not have it.
func (w *operator) hostOf(app *v1alpha1.Application) (string, error) {
	host := names.Of(app).HostName(w.settings.BaseDomain)
	return host, w.settings.allows(host, app.Spec.Domain)
}

// previewHost returns the host of a preview.
func (w *operator) previewHost(preview *v1alpha1.PreviewEnvironment) string {
	app := &v1alpha1.Application{}
	app.Name = string(preview.Spec.ApplicationRef)
	return names.OfPreview(app, preview.Spec.PullRequest).HostName(w.settings.BaseDomain)
}

// claimHost decides whether an Application has the host that it wants. The error says why
// it has not, and nothing about who has it.
func (w *operator) claimHost(app *v1alpha1.Application) error {
	host, err := w.hostOf(app)
	if err != nil {
		return err
	}
	var all []claimant
	for _, key := range w.apps.Users(hostReference(host)) {
		found, err := w.apps.Get(key)
		if err != nil || found.UID == app.UID {
			continue
		}
		if _, refused := w.hostOf(found); refused == nil {
			all = append(all, claimant{key, found.UID, found.CreationTimestamp, found.Status.Host})
		}
	}
	if !w.hosts.claim(host, claimant{kube.KeyOf(app), app.UID, app.CreationTimestamp, app.Status.Host}, all) {
		return taken(host)
	}
	return nil
}

// freeHosts frees what an Application has beside one host, and wakes those that want it.
func (w *operator) freeHosts(key types.NamespacedName, but string) {
	for _, host := range w.hosts.keep(key, but) {
		w.apps.Add(w.apps.Users(hostReference(host))...)
	}
}

// claimPreviewHost is claimHost for a preview. Hosts of previews are below a domain that no
// Application has a host in. A preview without an Application that lasts has no claim beside
// what it has: its tenant could keep a host of another with one that never goes.
func (w *operator) claimPreviewHost(preview *v1alpha1.PreviewEnvironment) error {
	host := w.previewHost(preview)
	if slices.Contains(w.settings.reserved(), host) {
		return fmt.Errorf(
			"spec.applicationRef: the host %s %w: it is reserved for the platform; choose another Application or pull request",
			host,
			errHostNotAllowed,
		)
	}
	var all []claimant
	for _, key := range w.previews.Users(hostReference(host)) {
		found, err := w.previews.Get(key)
		if err != nil || found.UID == preview.UID {
			continue
		}
		if parent, err := w.parent(found); found.Status.Host == host || err != nil || parent != nil {
			all = append(all, claimant{key, found.UID, found.CreationTimestamp, found.Status.Host})
		}
	}
	if !w.previewHosts.claim(host, claimant{kube.KeyOf(preview), preview.UID, preview.CreationTimestamp, preview.Status.Host}, all) {
		return taken(host)
	}
	return nil
}

// freePreviewHosts is freeHosts for a preview.
func (w *operator) freePreviewHosts(key types.NamespacedName, but string) {
	for _, host := range w.previewHosts.keep(key, but) {
		w.previews.Add(w.previews.Users(hostReference(host))...)
	}
}

func taken(host string) error {
	return fmt.Errorf("the host %s %w; choose another name, environment or spec.domain", host, errHostTaken)
}

// hostReason returns the reason of a condition.
func hostReason(err error) string {
	if errors.Is(err, errHostTaken) {
		return reasonHostTaken
	}
	return reasonHostAllowed
}
