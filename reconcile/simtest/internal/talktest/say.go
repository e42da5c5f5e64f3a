package talktest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// kind is one of the kinds that are talked about.
type kind struct {
	resource, version, kind, root string
	status                        bool
	custom                        bool
	content                       func(n int, node string) string
}

func kinds() []*kind {
	return []*kind{
		{resource: "configmaps", version: "v1", kind: "ConfigMap", root: "/api/v1", content: func(n int, _ string) string {
			return fmt.Sprintf(`"data":{"k":"%d"}`, n)
		}},
		{resource: "pods", version: "v1", kind: "Pod", root: "/api/v1", status: true, content: pod},
		{resource: "deployments", version: "apps/v1", kind: "Deployment", root: "/apis/apps/v1", status: true, content: deployment},
		{
			resource: "leases", version: "coordination.k8s.io/v1", kind: "Lease", root: "/apis/coordination.k8s.io/v1",
			content: func(n int, _ string) string { return fmt.Sprintf(`"spec":{"holderIdentity":"h%d"}`, n) },
		},
		{
			resource: "widgets", version: "example.com/v1", kind: "Widget", root: "/apis/example.com/v1", status: true, custom: true,
			content: func(n int, _ string) string { return fmt.Sprintf(`"spec":{"size":%d},"status":{"phase":"P%d"}`, n, n) },
		},
		{
			resource: "gadgets", version: "example.com/v1", kind: "Gadget", root: "/apis/example.com/v1", custom: true,
			content: func(n int, _ string) string {
				return fmt.Sprintf(`"spec":{"size":%d},"status":{"phase":"P%d"}`, n, n%2)
			},
		},
	}
}

// pod has all that a real server would add, but for the status.
func pod(n int, node string) string {
	if node != "" {
		node = fmt.Sprintf(`"nodeName":%q,`, node)
	}
	return fmt.Sprintf(`"spec":{%s"containers":[%s],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst",
"serviceAccountName":"default","serviceAccount":"default","automountServiceAccountToken":false,"securityContext":{},
"schedulerName":"default-scheduler","enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority","priority":0,"tolerations":[
{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},
{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}]}`, node, container(n))
}

func container(n int) string {
	return fmt.Sprintf(`{"name":"c","image":"i%d","resources":{},"terminationMessagePath":"/dev/termination-log",
"terminationMessagePolicy":"File","imagePullPolicy":"Always"}`, n)
}

func deployment(n int, _ string) string {
	return fmt.Sprintf(`"spec":{"replicas":%d,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{
"containers":[%s],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","securityContext":{},
"schedulerName":"default-scheduler"}},"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"25%%","maxSurge":"25%%"}},
"revisionHistoryLimit":10,"progressDeadlineSeconds":600}`, n, container(n%2))
}

func (k *kind) path(namespace string) string {
	return k.root + "/namespaces/" + namespace + "/" + k.resource
}

// body is an object.
func (k *kind) body(name, labels string) string { return k.full(name, labels, "", 1, "") }

// full is an object with more fields of the metadata, the n-th content, and a node if
// it is a pod.
func (k *kind) full(name, labels, extra string, n int, node string) string {
	metadata := []string{}
	if name != "" {
		metadata = append(metadata, fmt.Sprintf(`"name":%q`, name))
	}
	if labels != "" {
		metadata = append(metadata, `"labels":{`+labels+`}`)
	}
	if extra != "" {
		metadata = append(metadata, extra)
	}
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{%s},%s}`, k.version, k.kind, strings.Join(metadata, ","), k.content(n, node))
}

// kindOf is the kind that a path is about.
func kindOf(path string) *kind {
	path, _, _ = strings.Cut(path, "?")
	for _, k := range kinds() {
		if strings.HasPrefix(path, k.root+"/") && strings.Contains(path+"/", "/"+k.resource+"/") {
			return k
		}
	}
	return nil
}

func pick[T any](c *Conversation, all ...T) T { return all[c.random.IntN(len(all))] }

// chance is true once in n times.
func (c *Conversation) chance(n int) bool { return c.random.IntN(n) == 0 }

// subject is an object to talk about: one that exists if there is one, mostly.
func (c *Conversation) subject() *object {
	var all []*object
	for _, name := range slices.Sorted(maps.Keys(c.objects)) {
		all = append(all, c.objects[name])
	}
	if len(all) > 0 && !c.chance(8) {
		return pick(c, all...)
	}
	k := pick(c, kinds()...)
	o := &object{kind: k, namespace: c.Namespace, name: c.name(k), real: [2]string{"none", "none"}}
	if known := c.objects[o.id()]; known != nil {
		return known
	}
	return o
}

// name is a name for an object. Pods of some names have a node.
func (c *Conversation) name(*kind) string { return fmt.Sprint("n", c.random.IntN(5)) }

func nodeOf(k *kind, name string) string {
	if k.resource == "pods" && (name == "n3" || name == "n4") {
		return "node-1"
	}
	return ""
}

func (o *object) id() string { return o.kind.resource + " " + o.namespace + " " + o.name }

// path is that of the object, whose name may be generated.
func (o *object) path() string {
	name := o.name
	if o.now[0] != "" {
		name = "{{name " + o.id() + "}}"
	}
	return o.kind.path(o.namespace) + "/" + name
}

func (c *Conversation) labels() string {
	return pick(c, "", `"tier":"web"`, `"tier":"db"`, `"tier":"db","app":"shop"`, `"app":"shop"`, `"app":""`)
}

// say sends one request, and what belongs to it.
func (c *Conversation) say(ctx context.Context) (string, error) {
	if len(c.written) > 0 {
		r := c.written[0]
		c.written = c.written[1:]
		return c.ask(ctx, r)
	}
	for n, w := range c.watches {
		if c.step >= w.until {
			c.watches = slices.Delete(c.watches, n, n+1)
			defer w.close()
			return c.end(ctx, w)
		}
	}
	acts := []func() Request{
		c.create, c.create, c.create, c.create, c.update, c.update, c.update, c.merge, c.merge, c.merge, c.merge,
		c.finalize, c.finalize, c.finalize, c.status, c.status, c.status, c.delete, c.delete, c.delete, c.get, c.get,
		c.list, c.list, c.list, c.page, c.deleteAll, c.wrong, c.scale, c.podWork,
	}
	if c.Machinery {
		acts = append(acts, c.jsonPatch, c.strategic, c.apply, c.apply)
	}
	if c.chance(15) && len(c.watches) < 4 {
		return c.watch(ctx)
	}
	r := pick(c, acts...)()
	if r.Method == "" {
		r = c.get()
	}
	return c.ask(ctx, r)
}

func (c *Conversation) watch(ctx context.Context) (string, error) {
	k := pick(c, kinds()...)
	path := k.path(c.Namespace)
	m, ok := c.lists[path]
	if !ok || c.step-m.step > 60 {
		return c.ask(ctx, Request{Method: http.MethodGet, Path: path})
	}
	type selected struct{ selector, labels string }
	s := pick(c, selected{}, selected{}, selected{"tier", `"tier":"x"`}, selected{"tier=web", `"tier":"web"`},
		selected{"tier in (web,db)", `"tier":"db"`}, selected{"tier notin (web)", ``}, selected{"!app", ``})
	version := pick(c, "{{list "+path+"}}", "{{list "+path+"}}", "")
	options := url.Values{"watch": {"true"}, "labelSelector": {s.selector}}
	r := Request{Method: http.MethodGet, Path: path + "?" + options.Encode() + "&resourceVersion=" + version}
	if version == "" {
		r.Path = path + "?" + options.Encode()
	}
	if c.chance(4) {
		r.Accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	}
	return c.begin(ctx, r, k, s.labels)
}
