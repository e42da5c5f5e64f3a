package operator_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// app is an Application as the judge reads it.
type app struct{ simtest.Object }

func (a app) enabled(part string) bool { return a.Field("spec", part, "enabled") == true }

func (a app) environment() string { return fmt.Sprint(a.Field("spec", "environment")) }

func (a app) short() string { return strings.TrimSuffix(a.environment(), "uction") }

func (a app) host() string {
	if a.environment() == "production" {
		return a.Name() + ".example.com"
	}
	return a.Name() + ".staging.example.com"
}

func (a app) schema() string { return theDatabase + " " + a.short() + "_" + a.Name() }

func (a app) bucket(name string) string {
	return theStorage + " plattr-" + a.short() + "-" + a.Name() + "-" + name
}

func (a app) realm() string { return theLogins + " " + a.Name() }

func (a app) public(bucket string) bool {
	all, _ := a.Field("spec", "storage", "buckets").([]any)
	for _, each := range all {
		if b, _ := each.(map[string]any); b["name"] == bucket {
			return b["public"] == true
		}
	}
	return false
}

// wants returns the things that an Application is to have, of all that it might.
func (a app) wants() map[string]bool {
	all := map[string]bool{
		a.schema(): a.enabled("database"), a.realm(): a.enabled("auth"), a.bucket("files"): false, a.bucket("media"): false,
	}
	buckets, _ := a.Field("spec", "storage", "buckets").([]any)
	for _, each := range buckets {
		b, _ := each.(map[string]any)
		all[a.bucket(fmt.Sprint(b["name"]))] = a.enabled("storage")
	}
	return all
}

func (a app) condition(kind string) map[string]any {
	all, _ := a.Field("status", "conditions").([]any)
	for _, each := range all {
		if c, _ := each.(map[string]any); c["type"] == kind {
			return c
		}
	}
	return nil
}

func (a app) is(m external.Mark) bool {
	return m.Namespace == a.Namespace() && m.Name == a.Name() && m.UID == a.UID() && !m.Retained
}

// apps are the Applications that last, by UID.
func apps(w *simtest.World) map[string]app {
	all := map[string]app{}
	for _, o := range w.AllStored(appsKind) {
		if !o.Deleting() {
			all[o.UID()] = app{o}
		}
	}
	return all
}

// marks returns the marks of a thing by attribute: one, or for a realm one of each object that uses it.
func (t thing) marks() map[string]external.Mark {
	all, attributes := map[string]external.Mark{}, map[string]string{"": t.mark}
	if strings.HasPrefix(t.mark, "{") {
		attributes = t.attributes()
	}
	for key, text := range attributes {
		if m, ok := external.ParseMark(text); ok && key != "platform.internal/home" {
			all[key] = m
		}
	}
	return all
}

func (t thing) attributes() map[string]string {
	all := map[string]string{}
	if err := json.Unmarshal([]byte(t.mark), &all); err != nil {
		return nil
	}
	return all
}

func managed(o simtest.Object) bool {
	return o.Label("app.kubernetes.io/managed-by") == "plattr-operator"
}

// childKinds are the kinds of the children of an Application.
var childKinds = []string{
	"secrets", "configmaps", "serviceaccounts", "services", "deployments.apps", jobsKind, "horizontalpodautoscalers.autoscaling",
	"ingresses.networking.k8s.io", "networkpolicies.networking.k8s.io",
}

// converged returns what is not as it is to be once all is quiet.
func (p *platform) converged(w *simtest.World) error {
	var errs []error
	live := apps(w)
	for _, o := range w.AllStored(appsKind) {
		if o.Deleting() {
			errs = append(errs, fmt.Errorf("%s/%s is still there: %v", o.Namespace(), o.Name(), app{o}.condition("Ready")))
		}
	}
	for _, kind := range childKinds {
		for _, o := range w.AllStored(kind) {
			if _, lasts := live[o.Label(v1alpha1.LabelOwner)]; managed(o) && !lasts {
				errs = append(errs, fmt.Errorf("%s %s/%s is left of %s", kind, o.Namespace(), o.Name(), o.Label(v1alpha1.LabelOwner)))
			}
		}
	}
	errs = append(errs, p.leftovers(w, live))
	hosts := map[string][]app{}
	for _, uid := range keysOf(live) {
		a := live[uid]
		hosts[a.host()] = append(hosts[a.host()], a)
		if err := p.atRest(w, live, a); err != nil {
			errs = append(errs, fmt.Errorf("%s/%s (%s): %w: %v", a.Namespace(), a.Name(), a.environment(), err, a.Field("status")))
		}
	}
	for _, host := range keysOf(hosts) {
		taken := 0
		for _, a := range hosts[host] {
			if a.condition("IngressReady")["reason"] == "HostTaken" {
				taken++
			}
		}
		if taken != len(hosts[host])-1 {
			errs = append(errs, fmt.Errorf("%d of %d Applications have not the host %s", taken, len(hosts[host]), host))
		}
	}
	p.resting = len(errs) == 0
	return errors.Join(errs...)
}

// leftovers are things that no Application wants.
func (p *platform) leftovers(w *simtest.World, live map[string]app) error {
	var errs []error
	for name, was := range p.strangers {
		if now, there := p.things[name]; !there || text(now.fields) != text(was.fields) || now.mark != was.mark {
			errs = append(errs, fmt.Errorf("%s is of others, and has changed", name))
		}
	}
	for _, name := range keysOf(p.things) {
		t := p.things[name]
		if _, stranger := p.strangers[name]; stranger {
			continue
		}
		marks := t.marks()
		if len(marks) == 0 {
			errs = append(errs, fmt.Errorf("%s has no owner: %s", name, t.mark))
		}
		for _, m := range marks {
			owner, lasts := live[m.UID]
			switch {
			case m.Retained && m.Name == retaining:
			case lasts && !m.Retained && (owner.wants()[name] || p.waits(w, owner)):
			case strings.Contains(p.restored[name], "uid="+m.UID):
			default:
				errs = append(errs, fmt.Errorf("%s is left: %s", name, m))
			}
		}
	}
	return errors.Join(errs...)
}

// atRest returns what is wrong about an Application that lasts.
func (p *platform) atRest(w *simtest.World, live map[string]app, a app) error {
	var errs []error
	all := true
	for part, names := range map[string][]string{
		"Database": {a.schema()}, "Auth": {a.realm()}, "Storage": {a.bucket("files"), a.bucket("media")},
	} {
		mine, wanted := true, a.enabled(strings.ToLower(part))
		for _, name := range names {
			if !a.wants()[name] {
				continue
			}
			has, err := p.has(w, live, a, name)
			mine = mine && has
			errs = append(errs, err)
		}
		all = all && (mine || !wanted)
		c := a.condition(part + "Ready")
		switch {
		case !wanted && c != nil && !p.waits(w, a), wanted && mine != (c["status"] == "True"),
			wanted && !mine && c["reason"] != external.ReasonOwnedByOther:
			errs = append(errs, fmt.Errorf("wanted: %t, its own: %t, and it says %v", wanted, mine, c))
		}
	}
	if all && !obstructed(a) {
		errs = append(errs, p.migrated(w, a))
	}
	if all && !a.failed() {
		errs = append(errs, p.workload(w, a))
	}
	free := a.condition("IngressReady")["reason"] != "HostTaken" && !obstructed(a) && !a.failed()
	if ready := a.condition("Ready")["status"] == "True"; ready != (all && free) {
		errs = append(errs, fmt.Errorf("has all parts: %t, its host: %t, and says %v", all, free, a.condition("Ready")))
	} else if phase := a.Field("status", "phase"); ready && phase != "Running" {
		errs = append(errs, fmt.Errorf("is ready, and its phase is %v", phase))
	}
	return errors.Join(errs...)
}

// waits reports whether the workload of an Application stays as it is, with what it uses, since
// a part that is new is not its own.
func (p *platform) waits(w *simtest.World, a app) bool {
	stays := a.failed() || a.condition("Ready")["reason"] == external.ReasonOwnedByOther
	return obstructed(a) || stays && w.Stored("deployments.apps", a.Namespace(), a.Name()) != nil
}

// obstructed reports whether others have an object with the name of a child.
func obstructed(a app) bool { return a.Name() == "taken" && a.Namespace() == "green" }

// has reports whether a thing is an Application's own. It is as it should be then. Otherwise
// something stands against it.
func (p *platform) has(w *simtest.World, live map[string]app, a app, name string) (bool, error) {
	t, there := p.things[name]
	if !there {
		return false, fmt.Errorf("%s is not there", name)
	}
	marks := t.marks()
	for _, m := range marks {
		if a.is(m) {
			return true, p.right(a, name, t)
		}
	}
	if _, stranger := p.strangers[name]; stranger || p.restored[name] != "" {
		return false, nil
	}
	for _, m := range marks {
		owner, lasts := live[m.UID]
		if lasts && (owner.wants()[name] || p.waits(w, owner)) || m.Retained && m.Namespace != a.Namespace() {
			return false, nil
		}
	}
	return false, fmt.Errorf("%s is not its own, and nothing stands against it: %s", name, t.mark)
}

// right returns what is wrong about a thing that an Application has.
func (p *platform) right(a app, name string, t thing) error {
	wants := map[string]string{}
	switch serviceOf(name) {
	case theDatabase:
		wants = map[string]string{"login": "true", "grants": "all", "anon": fmt.Sprint(a.Field("spec", "database", "anonRead"))}
	case theStorage:
		bucket := name[strings.LastIndex(name, "-")+1:]
		if public := strings.Contains(t.fields["policy"], `"s3:GetObject"`); public != a.public(bucket) {
			return fmt.Errorf("%s is public: %t", name, public)
		}
		own := a.condition("IngressReady")["reason"] != "HostTaken"
		if strings.Contains(t.fields["cors"], "https://"+a.host()) != own {
			return fmt.Errorf("%s has its host: %t, and has CORS %s", name, own, t.fields["cors"])
		}
	case theLogins:
		return p.realmRight(name, t)
	}
	for field, want := range wants {
		if t.fields[field] != want {
			return fmt.Errorf("%s has %s %q, and is to have %q", name, field, t.fields[field], want)
		}
	}
	return nil
}

// realmRight returns what is wrong about the client of a realm: it leads to the hosts of the
// objects that use the realm, and to no other.
func (p *platform) realmRight(name string, t thing) error {
	var client struct {
		RedirectURIs []string `json:"redirectUris"`
		WebOrigins   []string `json:"webOrigins"`
		Direct       bool     `json:"directAccessGrantsEnabled"`
	}
	if err := json.Unmarshal([]byte(t.fields["client"]), &client); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	var wants []string
	for key, value := range t.attributes() {
		if m, ok := external.ParseMark(value); ok && key != "platform.internal/home" && !strings.Contains(value, " retained") {
			for field := range strings.FieldsSeq(value) {
				if uri, ok := strings.CutPrefix(field, "redirect="); ok && m.UID != "" {
					wants = append(wants, uri)
				}
			}
		}
	}
	slices.Sort(wants)
	slices.Sort(client.RedirectURIs)
	if !slices.Equal(slices.Compact(wants), client.RedirectURIs) || client.Direct {
		return fmt.Errorf("%s has a client %+v, and its owners say %v", name, client, wants)
	}
	return nil
}
