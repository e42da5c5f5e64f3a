package operator_test

import (
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// workload returns what is wrong about what runs an Application whose parts are all there.
func (p *platform) workload(w *simtest.World, a app) error {
	if obstructed(a) {
		return nil
	}
	errs := []error{p.children(w, a)}
	secret := w.Stored("secrets", a.Namespace(), a.Name()+"-db")
	password, _ := secret.Field("data", "DB_PASSWORD").(string)
	plain, _ := base64.StdEncoding.DecodeString(password)
	if a.enabled("database") && string(plain) != p.things[a.schema()].fields["password"] {
		errs = append(errs, errors.New("the role has another password than the Secret"))
	}
	if d := w.Stored("deployments.apps", a.Namespace(), a.Name()); d != nil {
		errs = append(errs, p.pods(w, a, d, password))
	}
	return errors.Join(errs...)
}

// children returns what is wrong about the objects of an Application.
func (p *platform) children(w *simtest.World, a app) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	free := a.condition("IngressReady")["reason"] != "HostTaken"
	there := func(kind, name string, wanted bool) simtest.Object {
		o := w.Stored(kind, a.Namespace(), name)
		if (o != nil) != wanted {
			wrong("%s %s is there: %t", kind, name, o != nil)
		}
		return o
	}
	for _, kind := range []string{
		"serviceaccounts", "services", "horizontalpodautoscalers.autoscaling", "networkpolicies.networking.k8s.io",
	} {
		there(kind, a.Name(), true)
	}
	there("configmaps", a.Name()+"-storage", a.enabled("storage"))
	there("configmaps", a.Name()+"-auth", a.enabled("auth"))
	there("configmaps", a.Name()+"-redis", a.enabled("redis"))
	there("ingresses.networking.k8s.io", a.Name()+"-api", free && a.enabled("database"))
	if ingress := there("ingresses.networking.k8s.io", a.Name(), free); ingress != nil {
		rules, _ := ingress.Field("spec", "rules").([]any)
		rule, _ := rules[0].(map[string]any)
		if len(rules) != 1 || rule["host"] != a.host() {
			wrong("the Ingress leads to %v", rules)
		}
	}
	secret := there("secrets", a.Name()+"-db", a.enabled("database"))
	if asked := a.Field("metadata", "annotations", v1alpha1.AnnotationRotate); secret != nil && asked != nil &&
		secret.Field("metadata", "annotations", v1alpha1.AnnotationRotate) != asked {
		wrong("rotation %v was not done", asked)
	}
	there("deployments.apps", a.Name(), true)
	return errors.Join(errs...)
}

// pods returns what is wrong about the pods of an Application.
func (p *platform) pods(w *simtest.World, a app, d simtest.Object, password string) error {
	if wanted, scaled := p.scaled[d.UID()]; scaled && d.Field("spec", "replicas") != wanted {
		return fmt.Errorf("the autoscaler wants %v replicas, and there are %v", wanted, d.Field("spec", "replicas"))
	}
	running := 0.0
	for _, pod := range w.AllStored("pods") {
		if pod.Namespace() != a.Namespace() || pod.Label(v1alpha1.LabelOwner) != a.UID() || migrates(pod) ||
			pod.Field("status", "phase") != "Running" {
			continue
		}
		running++
		containers, _ := pod.Field("spec", "containers").([]any)
		first, _ := containers[0].(map[string]any)
		if first["image"] != a.Field("spec", "imageRef") || len(containers) != 1+count(a.enabled("database")) {
			return fmt.Errorf("pod %s has %d containers, the first %v", pod.Name(), len(containers), first["image"])
		}
		if a.enabled("database") && p.reads[pod.UID()] != password {
			return fmt.Errorf("pod %s runs with an old password", pod.Name())
		}
	}
	if d.Field("spec", "replicas") != running {
		return fmt.Errorf("%v of %v pods run", running, d.Field("spec", "replicas"))
	}
	return nil
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
