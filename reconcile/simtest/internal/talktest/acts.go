package talktest

import (
	"fmt"
	"net/http"
	"strings"
)

const (
	jsonForm  = "application/json"
	mergeForm = "application/merge-patch+json"
)

// extra are more fields of the metadata of a new object.
func (c *Conversation) extra() string {
	var all []string
	if c.chance(3) {
		all = append(all, pick(c,
			`"finalizers":["example.com/a"]`, `"finalizers":["example.com/a","example.com/b"]`, `"finalizers":["orphan"]`,
			`"finalizers":["foregroundDeletion","example.com/a"]`))
	}
	if c.chance(5) {
		o := c.subject()
		if o.now[0] != "" {
			all = append(all, fmt.Sprintf(
				`"ownerReferences":[{"apiVersion":%q,"kind":%q,"name":"x","uid":"{{uid %s}}","controller":%v,"blockOwnerDeletion":true}]`,
				o.kind.version, o.kind.kind, o.id(), c.chance(2),
			))
		}
	}
	if c.chance(6) {
		all = append(all, `"annotations":{"example.com/note":"x"}`)
	}
	if len(all) == 0 && c.chance(40) {
		all = append(all, pick(c,
			`"resourceVersion":"1"`, `"deletionTimestamp":"2020-01-01T00:00:00Z"`, `"namespace":"elsewhere"`, `"generation":7`, `"uid":"x"`,
			`"labels":{"a b":"c"}`, `"finalizers":["plain"]`, `"ownerReferences":[{"name":"x"}]`, `"annotations":{"a b":"c"}`,
			`"creationTimestamp":"2020-01-01T00:00:00Z"`, `"deletionGracePeriodSeconds":5`, `"labels":{"a":"-"}`))
	}
	return strings.Join(all, ",")
}

func (c *Conversation) create() Request {
	k := pick(c, kinds()...)
	name, namespace, extra := c.name(k), c.Namespace, c.extra()
	switch c.random.IntN(25) {
	case 0:
		name = "Wrong_Name"
	case 1:
		name = ""
	case 2, 3:
		name, namespace = "", c.Namespace+"-b"
		extra = strings.TrimSuffix(`"generateName":"g-",`+extra, ",")
	case 4:
		namespace += "-b"
	case 5:
		namespace = "missing"
	}
	options := ""
	if c.chance(15) {
		options = pick(c, "?dryRun=All", "?dryRun=Some", "?fieldValidation=Warn", "?fieldValidation=Wrong", "?fieldManager=me")
	}
	return Request{
		Method: http.MethodPost, Path: k.path(namespace) + options, Form: jsonForm,
		Body: k.full(name, c.labels(), extra, c.random.IntN(3), nodeOf(k, name)),
	}
}

// precondition are fields of the metadata that must fit.
func (c *Conversation) precondition(o *object) string {
	id := o.id()
	if o.now[0] == "" {
		return pick(c, "", `"resourceVersion":"5"`, `"uid":"none"`)
	}
	return pick(c,
		"", "", `"resourceVersion":"{{now `+id+`}}"`, `"resourceVersion":"{{now `+id+`}}"`, `"resourceVersion":"{{now `+id+`}}"`,
		`"resourceVersion":"{{then `+id+`}}"`, `"uid":"{{uid `+id+`}}"`, `"uid":"none"`,
		`"resourceVersion":"{{now `+id+`}}","uid":"{{uid `+id+`}}"`, `"resourceVersion":"{{now `+id+`}}","uid":"none"`,
	)
}

func join(parts ...string) string {
	var all []string
	for _, each := range parts {
		if each != "" {
			all = append(all, each)
		}
	}
	return strings.Join(all, ",")
}

func (c *Conversation) update() Request {
	o := c.subject()
	name := o.name
	if o.now[0] != "" {
		name = "{{name " + o.id() + "}}"
	}
	if c.chance(30) {
		name = pick(c, "", "another")
	}
	node := o.node
	if o.now[0] == "" {
		node = nodeOf(o.kind, o.name)
	}
	more := ""
	if c.chance(4) {
		more = c.extra()
	}
	if strings.Contains(more, `"deletion`) || strings.Contains(more, `"resourceVersion"`) || strings.Contains(more, `"uid":"x"`) ||
		strings.Contains(more, `"labels"`) {
		more = ""
	}
	return Request{
		Method: http.MethodPut, Path: o.path() + pick(c, "", "", "", "", "", "", "", "?dryRun=All"), Form: jsonForm,
		Body: o.kind.full(name, c.labels(), join(c.precondition(o), more), c.random.IntN(3), node),
	}
}

// change is a part of a merge patch that changes the content.
func (c *Conversation) change(k *kind) string {
	n := c.random.IntN(3)
	switch k.resource {
	case "configmaps":
		return pick(c, fmt.Sprintf(`"data":{"k":"%d"}`, n), `"data":{"more":"x"}`, `"data":null`, `"data":{"more":null}`)
	case "pods":
		return fmt.Sprintf(`"spec":{"containers":[%s]}`, container(n))
	case "deployments":
		return pick(c, fmt.Sprintf(`"spec":{"replicas":%d}`, n), fmt.Sprintf(`"spec":{"template":{"spec":{"containers":[%s]}}}`, container(n)),
			`"status":{"replicas":5}`)
	case "leases":
		return pick(c, fmt.Sprintf(`"spec":{"holderIdentity":"h%d"}`, n), `"spec":{"leaseDurationSeconds":5}`)
	}
	return pick(c, fmt.Sprintf(`"spec":{"size":%d}`, n), `"spec":{"deep":{"a":[1,2],"b":null}}`, `"spec":null`,
		fmt.Sprintf(`"status":{"phase":"P%d"}`, n))
}

func (c *Conversation) merge() Request {
	o := c.subject()
	metadata := pick(c,
		"", "", `"labels":{"tier":null}`, `"labels":{"tier":"web"}`, `"labels":{"tier":"db","app":null}`, `"labels":null`,
		`"annotations":{"example.com/note":"y"}`, `"annotations":null`,
	)
	if c.chance(25) {
		metadata = pick(c,
			// Not deletionTimestamp: of an object that is being deleted it changes nothing but the managedFields.
			`"deletionTimestamp":null`, `"generation":7`, `"creationTimestamp":null`, `"uid":null`,
			`"name":"another"`, `"namespace":"another"`, `"labels":{"a b":"c"}`, `"finalizers":["plain"]`, `"name":null`, `"namespace":null`,
			`"resourceVersion":null`, `"resourceVersion":"0"`, `"ownerReferences":[{"name":"x"}]`)
	}
	body := join(fmt.Sprintf(`"metadata":{%s}`, join(metadata, c.preconditionOnce(o, metadata))), pick(c, "", c.change(o.kind)))
	if c.chance(60) {
		body = pick(c, `"metadata":null`, `"kind":"Another"`, `"apiVersion":"v9"`, `"kind":null`)
	}
	r := Request{
		Method: http.MethodPatch,
		Path:   o.path() + pick(c, "", "", "", "", "", "", "", "?dryRun=All"),
		Form:   mergeForm,
		Body:   "{" + body + "}",
	}
	if c.chance(80) {
		r.Body = pick(c, "[]", "{", "null", "7")
	}
	return r
}

func (c *Conversation) preconditionOnce(o *object, metadata string) string {
	if strings.Contains(metadata, `"uid"`) || strings.Contains(metadata, `"resourceVersion"`) || !c.chance(3) {
		return ""
	}
	return c.precondition(o)
}

// finalize adds and removes what holds an object.
func (c *Conversation) finalize() Request {
	o := c.subject()
	finalizers := pick(
		c,
		"null",
		"null",
		"null",
		"[]",
		`["example.com/a"]`,
		`["example.com/b"]`,
		`["example.com/a","example.com/b"]`,
		`["orphan"]`,
	)
	return Request{
		Method: http.MethodPatch, Path: o.path(), Form: mergeForm, Body: fmt.Sprintf(`{"metadata":{"finalizers":%s}}`, finalizers),
	}
}

func (c *Conversation) status() Request {
	o := c.subject()
	n := c.random.IntN(3)
	status := fmt.Sprintf(`"status":{"phase":"P%d"}`, n)
	switch o.kind.resource {
	case "pods":
		status = fmt.Sprintf(`"status":{"phase":%q,"qosClass":"BestEffort"}`, pick(c, "Pending", "Running", "Running", "Succeeded", "Failed"))
	case "deployments":
		status = fmt.Sprintf(`"status":{"replicas":%d}`, n+1) // a schema would drop a 0
	}
	metadata := pick(c,
		"", "", "", `"labels":{"tier":"status"}`, `"annotations":{"example.com/note":"status"}`, `"finalizers":["example.com/a"]`,
		`"finalizers":null`, `"ownerReferences":null`, `"annotations":null`, `"labels":null`,
	)
	if o.kind.resource != "pods" && c.chance(3) {
		name := o.name
		if o.now[0] != "" {
			name = "{{name " + o.id() + "}}"
		}
		body := o.kind.full(name, c.labels(), join(c.precondition(o)), n, "")
		if o.kind.resource == "deployments" {
			body = strings.TrimSuffix(body, "}") + "," + status + "}"
		}
		return Request{Method: http.MethodPut, Path: o.path() + "/status", Form: jsonForm, Body: body}
	}
	body := fmt.Sprintf(
		`{"metadata":{%s},%s}`,
		join(metadata, c.preconditionOnce(o, metadata)),
		join(status, pick(c, "", "", c.changeOnce(o.kind))),
	)
	return Request{Method: http.MethodPatch, Path: o.path() + "/status", Form: mergeForm, Body: body}
}

// changeOnce is a change of anything but the status.
func (c *Conversation) changeOnce(k *kind) string {
	if change := c.change(k); !strings.HasPrefix(change, `"status"`) {
		return change
	}
	return ""
}

func (c *Conversation) delete() Request {
	o := c.subject()
	id := o.id()
	r := Request{Method: http.MethodDelete, Path: o.path(), Form: jsonForm}
	switch c.random.IntN(8) {
	case 0:
		r.Path += pick(c, "?propagationPolicy=Foreground", "?propagationPolicy=Orphan", "?orphanDependents=true", "?orphanDependents=false",
			"?gracePeriodSeconds=0", "?gracePeriodSeconds=7", "?dryRun=All", "?propagationPolicy=Wrong", "?gracePeriodSeconds=x", "?dryRun=x")
	case 1, 2:
		r.Body = pick(
			c,
			`{"propagationPolicy":"Foreground"}`,
			`{"propagationPolicy":"Orphan"}`,
			`{"propagationPolicy":"Background"}`,
			`{"orphanDependents":true}`,
			`{"orphanDependents":false}`,
			`{"gracePeriodSeconds":0}`,
			`{"gracePeriodSeconds":5}`,
			`{"gracePeriodSeconds":-1}`,
			`{"gracePeriodSeconds":0,"propagationPolicy":"Foreground"}`,
			`{"dryRun":["All"]}`,
			`{"propagationPolicy":"Wrong"}`,
			`{"orphanDependents":true,"propagationPolicy":"Orphan"}`,
			`{"kind":"DeleteOptions","apiVersion":"v1","unknown":1}`,
			`{"dryRun":["x"]}`,
			`{"dryRun":["All"],"propagationPolicy":"Foreground"}`,
			`{"dryRun":["All"],"gracePeriodSeconds":9}`,
		)
	case 3:
		if o.now[0] != "" {
			r.Body = pick(c,
				`{"preconditions":{"uid":"{{uid `+id+`}}"}}`, `{"preconditions":{"uid":"none"}}`,
				`{"preconditions":{"resourceVersion":"{{now `+id+`}}"}}`, `{"preconditions":{"resourceVersion":"{{then `+id+`}}"}}`,
				`{"preconditions":{"uid":"{{uid `+id+`}}","resourceVersion":"{{now `+id+`}}"},"propagationPolicy":"Foreground"}`)
		}
	}
	return r
}

func (c *Conversation) deleteAll() Request {
	if !c.chance(3) {
		return Request{}
	}
	k := pick(c, kinds()...)
	return Request{Method: http.MethodDelete, Form: jsonForm, Path: k.path(pick(c, c.Namespace, c.Namespace+"-b")) + pick(
		c,
		"",
		"?labelSelector=tier",
		"?labelSelector=tier%3Dweb",
		"?labelSelector=app+in+(shop)",
		"?dryRun=All",
		"?fieldSelector=metadata.name%3Dn1",
		"?propagationPolicy=Foreground",
		"?gracePeriodSeconds=0",
		"?labelSelector=tier&propagationPolicy=Orphan",
	)}
}

// wrong is what no client should send.
func (c *Conversation) wrong() Request {
	k := pick(c, kinds()...)
	path := k.path(c.Namespace)
	bare := `{"metadata":{"name":"n1"}}`
	if k.resource == "pods" || k.resource == "deployments" { // whose schemas want more
		bare = `{"metadata":{"name":"n2"}}`
	}
	return pick(c,
		Request{Method: http.MethodPut, Path: path, Form: jsonForm, Body: k.body("n1", "")},
		Request{Method: http.MethodPatch, Path: path, Form: mergeForm, Body: `{}`},
		Request{Method: http.MethodPost, Path: k.root + "/" + k.resource, Form: jsonForm, Body: k.body("n1", "")},
		Request{Method: http.MethodDelete, Path: k.root + "/" + k.resource},
		Request{Method: http.MethodGet, Path: path + "/n1/nothing"},
		Request{Method: http.MethodPost, Path: path, Form: "text/plain", Body: "hello"},
		Request{Method: http.MethodPut, Path: path + "/n1", Form: "text/plain", Body: "hello"},
		Request{Method: http.MethodPatch, Path: path + "/n1", Form: jsonForm, Body: `{}`},
		Request{Method: http.MethodPatch, Path: path + "/n1", Form: "text/plain", Body: `{}`},
		Request{Method: http.MethodPost, Path: path, Form: jsonForm, Body: `{"metadata":`},
		Request{Method: http.MethodPost, Path: path, Form: jsonForm, Body: `[]`},
		Request{Method: http.MethodPost, Path: path, Form: jsonForm, Body: ``},
		Request{Method: http.MethodPost, Path: path, Form: jsonForm, Body: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"n1"}}`},
		Request{Method: http.MethodGet, Path: path + "/n1", Accept: "text/plain"},
		Request{Method: http.MethodPost, Path: path + "/n1/status", Form: jsonForm, Body: k.body("n1", "")},
		Request{Method: http.MethodDelete, Path: path + "/n1/status"},
		Request{Method: http.MethodPut, Path: path + "/n1", Form: jsonForm, Body: bare},
		Request{Method: http.MethodDelete, Path: path + "/n1", Form: jsonForm, Body: `{"gracePeriodSeconds":`},
		Request{Method: http.MethodDelete, Path: path + "/n1", Form: jsonForm, Body: `{"kind":"Other","apiVersion":"v1"}`},
		Request{Method: "OPTIONS", Path: path},
	)
}

func (c *Conversation) scale() Request {
	o := c.subject()
	if o.kind.resource != "deployments" {
		return Request{}
	}
	// Always another number: a scale that changes nothing still takes the field in
	// managedFields, which makes a version.
	path, id, n := o.path()+"/scale", o.id(), c.step+10
	if c.chance(4) {
		n = -1
	}
	switch c.random.IntN(3) {
	case 0:
		return Request{Method: http.MethodGet, Path: path}
	case 1:
		return Request{
			Method: http.MethodPatch,
			Path:   path,
			Form:   mergeForm,
			Body: fmt.Sprintf(`{"metadata":{%s},"spec":{"replicas":%d}}`, pick(c, "",
				`"resourceVersion":"{{then `+id+`}}"`, `"resourceVersion":"{{now `+id+`}}"`), n),
		}
	}
	name := o.name
	if o.now[0] != "" {
		name = "{{name " + id + "}}"
	}
	return Request{Method: http.MethodPut, Path: path, Form: jsonForm, Body: fmt.Sprintf(
		`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":%q,"namespace":%q},"spec":{"replicas":%d}}`, name, o.namespace, n)}
}

// podWork is what a scheduler and an eviction do.
func (c *Conversation) podWork() Request {
	o := c.subject()
	if o.kind.resource != "pods" {
		return Request{}
	}
	name := o.name
	if o.now[0] != "" {
		name = "{{name " + o.id() + "}}"
	}
	if c.chance(2) {
		return Request{Method: http.MethodPost, Path: o.path() + "/binding", Form: jsonForm, Body: fmt.Sprintf(
			`{"apiVersion":"v1","kind":"Binding","metadata":{"name":%q},"target":{"kind":"Node","name":"node-2"}}`, name,
		), bound: o}
	}
	return Request{Method: http.MethodPost, Path: o.path() + "/eviction", Form: jsonForm, Body: fmt.Sprintf(
		`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q}%s}`,
		name,
		pick(c, "", "", `,"deleteOptions":{"gracePeriodSeconds":0}`,
			`,"deleteOptions":{"dryRun":["All"]}`),
	)}
}
