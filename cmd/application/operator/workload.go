package operator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"
)

// appContainer is the name of the app's container.
const appContainer = "app"

// postgrestImage is the sidecar of a pod with a database.
const postgrestImage = "postgrest/postgrest:v12.2.3"

var deploymentsResource = appsv1.SchemeGroupVersion.WithResource("deployments") //nolint:gochecknoglobals // constant

// workload returns what runs the app. The pods read the configs when they start.
func (p *pass) workload(configs []*unstructured.Unstructured) []*unstructured.Unstructured {
	objects := []*unstructured.Unstructured{
		p.account(), p.networkPolicy(), p.service(), p.deployment(configs), p.autoscaler(),
	}
	return append(objects, p.ingresses()...)
}

// deleted returns what others have deleted of a workload that stays as it is: what leads to its pods. What is
// there stays, too: it is of the image, and the host, of before.
func (p *pass) deleted() (objects []*unstructured.Unstructured) {
	if !p.exists(p.deploymentID()) {
		return nil
	}
	all := []*unstructured.Unstructured{p.networkPolicy(), p.service(), p.autoscaler()}
	if !p.moved {
		all = append(all, p.ingresses()...)
	}
	for _, o := range all {
		kind := o.GroupVersionKind()
		if !p.exists(apply.ID{Group: kind.Group, Kind: kind.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}) {
			objects = append(objects, o)
		}
	}
	return objects
}

// before returns what others have taken from a workload that waits for migrations: what was deleted,
// and the Deployment if it is gone or has another image than the one of before.
func (p *pass) before(ctx context.Context, configs []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	image := string(p.subject.app.Status.Migrations.Image)
	if image == "" {
		return p.deleted(), nil
	}
	id := p.deploymentID()
	found, err := p.op.client.Resource(deploymentsResource).Namespace(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read %s: %w", id, err)
	}
	if err == nil && appOf(found)["image"] == image {
		return p.deleted(), nil
	}
	o := p.deployment(configs)
	appOf(o)["image"] = image
	return append(p.deleted(), o), nil
}

// appOf returns the container of the app in a Deployment, nil if it has none.
func appOf(deployment *unstructured.Unstructured) object {
	containers, _, _ := unstructured.NestedFieldNoCopy(deployment.Object, "spec", "template", "spec", "containers")
	all, _ := containers.([]any)
	for _, each := range all {
		if container, ok := each.(object); ok && container["name"] == appContainer {
			return container
		}
	}
	return nil
}

// ingresses returns what leads to the app from outside: nothing, if its host is not its own.
func (p *pass) ingresses() (objects []*unstructured.Unstructured) {
	if p.hostErr != nil {
		return nil
	}
	objects = append(objects, p.ingress(p.subject.names.Workload(), "/", "Prefix", "http", nil))
	if p.subject.app.Spec.Database.Enabled {
		objects = append(
			objects,
			p.ingress(p.subject.names.APIIngress(), `/api/rest(/|$)(.*)`, "ImplementationSpecific", "rest", map[string]string{
				"nginx.ingress.kubernetes.io/rewrite-target": "/$2",
			}),
		)
	}
	return objects
}

func (p *pass) account() *unstructured.Unstructured {
	o := p.child("v1", "ServiceAccount", p.subject.names.Workload(), object{"automountServiceAccountToken": false})
	if role := p.subject.app.Spec.Storage.RoleARN; role != "" && p.subject.app.Spec.Storage.Enabled {
		o.SetAnnotations(map[string]string{"eks.amazonaws.com/role-arn": role})
	}
	return o
}

// namespaceLabel is on every namespace, with its name. The API server sees to it.
const namespaceLabel = "kubernetes.io/metadata.name"

// networkPolicy lets the ingress controllers and what the app names reach the ports of the
// Service, and nothing else.
func (p *pass) networkPolicy() *unstructured.Unstructured {
	ports := []any{object{"protocol": "TCP", "port": p.port()}}
	if p.subject.app.Spec.Database.Enabled {
		ports = append(ports, object{"protocol": "TCP", "port": int64(postgrestPort)})
	}
	in := func(namespace string) object {
		return object{"namespaceSelector": object{"matchLabels": object{namespaceLabel: namespace}}}
	}
	var from []any
	for _, namespace := range p.op.settings.gateways() {
		from = append(from, in(namespace))
	}
	for _, peer := range p.subject.app.Spec.Network.From {
		source := in(cmp.Or(string(peer.Namespace), p.subject.object.GetNamespace()))
		if peer.Application != "" {
			source["podSelector"] = object{"matchLabels": object{v1alpha1.LabelApp: string(peer.Application)}}
		}
		from = append(from, source)
	}
	return p.child("networking.k8s.io/v1", "NetworkPolicy", p.subject.names.Workload(), object{"spec": object{
		"podSelector": object{
			"matchLabels": p.selector(),
		},
		"policyTypes": []any{"Ingress"},
		"ingress":     []any{object{"from": from, "ports": ports}},
	}})
}

func (p *pass) service() *unstructured.Unstructured {
	port := func(name string, number, target int64) object {
		return object{"name": name, "port": number, "targetPort": target, "protocol": "TCP"}
	}
	ports := []any{port("http", 80, p.port())}
	if p.subject.app.Spec.Database.Enabled {
		ports = append(ports, port("rest", postgrestPort, postgrestPort))
	}
	return p.child("v1", "Service", p.subject.names.Workload(), object{"spec": object{"selector": p.selector(), "ports": ports}})
}

func (p *pass) deployment(configs []*unstructured.Unstructured) *unstructured.Unstructured {
	spec := &p.subject.app.Spec
	containers := []any{p.appContainer(configs)}
	if spec.Database.Enabled {
		containers = append(containers, p.postgrest())
	}
	o := p.child("apps/v1", "Deployment", p.subject.names.Workload(), object{"spec": object{
		"replicas": int64(spec.Scaling.Min),
		"selector": object{"matchLabels": p.selector()},
		"template": object{
			"metadata": object{"labels": p.subject.labels(), "annotations": object{v1alpha1.AnnotationChecksum: checksum(configs)}},
			"spec":     p.pod(containers),
		},
	}})
	o.SetAnnotations(map[string]string{v1alpha1.AnnotationRepository: spec.Repository, v1alpha1.AnnotationBranch: string(spec.Branch)})
	labels := o.GetLabels()
	labels[v1alpha1.Group+"/framework"] = string(spec.Framework)
	o.SetLabels(labels)
	return o
}

// pod returns the spec of a pod of the app.
func (p *pass) pod(containers []any) object {
	pod := object{
		"serviceAccountName": p.subject.names.Workload(), "automountServiceAccountToken": false,
		"securityContext": isolation.Restricted.Pod(),
		"containers":      containers,
	}
	if secrets := p.subject.app.Spec.ImagePullSecrets; p.subject.home == nil && len(secrets) > 0 { // a preview's namespace does not have them
		var names []any
		for _, secret := range secrets {
			names = append(names, object{"name": secret.Name})
		}
		pod["imagePullSecrets"] = names
	}
	return pod
}

// confined is what every container may not.
func confined(more object) object {
	context := isolation.Restricted.Container()
	maps.Copy(context, more)
	return context
}

// container returns a container with the image of the app, and with what the app is given.
func (p *pass) container(name string, configs []*unstructured.Unstructured) object {
	var env, from []any
	if p.subject.app.Spec.Database.Enabled {
		variables := postgrestVariables(p.host())
		for _, name := range slices.Sorted(maps.Keys(variables)) {
			env = append(env, object{"name": name, "value": variables[name]})
		}
	}
	for _, v := range p.subject.app.Spec.EnvVars {
		if p.subject.home != nil && v.SecretKeyRef != nil {
			continue // it is among the variables that are copied, or withheld
		}
		variable := object{"name": v.Name}
		if v.SecretKeyRef != nil {
			variable["valueFrom"] = object{"secretKeyRef": object{"name": v.SecretKeyRef.Name, "key": v.SecretKeyRef.Key}}
		} else {
			variable["value"] = v.Value
		}
		env = append(env, variable)
	}
	for _, o := range configs {
		ref := "configMapRef"
		if o.GetKind() == "Secret" {
			ref = "secretRef"
		}
		from = append(from, object{ref: object{"name": o.GetName()}})
	}
	return object{
		"name": name, "image": string(p.subject.app.Spec.ImageRef), "env": env, "envFrom": from,
		"resources": resources(p.subject.app.Spec.Resources), "securityContext": confined(nil),
	}
}

func (p *pass) appContainer(configs []*unstructured.Unstructured) object {
	probe := func(delay, period int64) object {
		return object{
			"httpGet":             object{"path": cmp.Or(p.subject.app.Spec.HealthPath, "/healthz"), "port": "http"},
			"initialDelaySeconds": delay,
			"periodSeconds":       period,
		}
	}
	container := p.container(appContainer, configs)
	container["ports"] = []any{object{"name": "http", "containerPort": p.port(), "protocol": "TCP"}}
	container["readinessProbe"], container["livenessProbe"] = probe(5, 10), probe(15, 20)
	if command := p.subject.app.Spec.Command; len(command) > 0 {
		container["command"] = words(command)
	}
	return container
}

// words returns a command as an object has it.
func words(command []string) []any {
	all := make([]any, len(command))
	for i, word := range command {
		all[i] = word
	}
	return all
}

// port is where the app listens.
func (p *pass) port() int64 { return int64(cmp.Or(p.subject.app.Spec.Port, appPort)) }

// resources completes what is stated: of CPU and of memory each, unless something of it is.
func resources(stated corev1.ResourceRequirements) object {
	requests, limits := object{}, object{}
	for name, usual := range map[corev1.ResourceName][2]string{
		corev1.ResourceCPU: {"100m", "1"}, corev1.ResourceMemory: {"256Mi", "512Mi"},
	} {
		_, requested := stated.Requests[name]
		if _, limited := stated.Limits[name]; !requested && !limited {
			requests[string(name)], limits[string(name)] = usual[0], usual[1]
		}
	}
	for name, quantity := range stated.Requests {
		requests[string(name)] = quantity.String()
	}
	for name, quantity := range stated.Limits {
		limits[string(name)] = quantity.String()
	}
	return object{"requests": requests, "limits": limits}
}

// postgrest returns the sidecar. It reads the URL from a key of its own: libpq refuses the
// search path in the app's URL.
func (p *pass) postgrest() object {
	value := func(name, value string) object { return object{"name": name, "value": value} }
	return object{
		"name": "postgrest", "image": postgrestImage,
		"env": []any{
			object{"name": "PGRST_DB_URI", "valueFrom": object{"secretKeyRef": object{"name": p.subject.names.Secret(), "key": keyPostgREST}}},
			value("PGRST_DB_SCHEMAS", p.subject.names.DatabaseSchema()), value("PGRST_DB_ANON_ROLE", p.subject.names.AnonRole()),
			value("PGRST_SERVER_PORT", "3001"), value("PGRST_DB_CHANNEL_ENABLED", "true"),
		},
		"ports":           []any{object{"name": "rest", "containerPort": int64(postgrestPort), "protocol": "TCP"}},
		"resources":       object{"requests": object{"cpu": "50m", "memory": "64Mi"}},
		"securityContext": confined(object{"readOnlyRootFilesystem": true, "runAsUser": int64(1000)}),
	}
}

func (p *pass) autoscaler() *unstructured.Unstructured {
	scaling := p.subject.app.Spec.Scaling
	return p.child("autoscaling/v2", "HorizontalPodAutoscaler", p.subject.names.Workload(), object{"spec": object{
		"scaleTargetRef": object{"apiVersion": "apps/v1", "kind": "Deployment", "name": p.subject.names.Workload()},
		"minReplicas":    int64(scaling.Min), "maxReplicas": int64(scaling.Max),
		"metrics": []any{object{"type": "Resource", "resource": object{
			"name": "cpu", "target": object{"type": "Utilization", "averageUtilization": int64(scaling.TargetCPU)},
		}}},
	}})
}

func (p *pass) ingress(name, path, pathType, port string, annotations map[string]string) *unstructured.Unstructured {
	host := p.host()
	o := p.child("networking.k8s.io/v1", "Ingress", name, object{"spec": object{
		"ingressClassName": "nginx",
		"tls":              []any{object{"hosts": []any{host}, "secretName": p.subject.names.TLSSecret()}},
		"rules": []any{object{"host": host, "http": object{"paths": []any{
			object{
				"path":     path,
				"pathType": pathType,
				"backend":  object{"service": object{"name": p.subject.names.Workload(), "port": object{"name": port}}},
			},
		}}}},
	}})
	all := map[string]string{
		"cert-manager.io/cluster-issuer": "letsencrypt-prod", "external-dns.alpha.kubernetes.io/hostname": host,
	}
	maps.Copy(all, annotations)
	o.SetAnnotations(all)
	return o
}

func (p *pass) host() string { return p.subject.names.HostName(p.op.settings.BaseDomain) }
