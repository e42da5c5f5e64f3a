package talktest

import (
	"fmt"
	"net/http"
)

func (c *Conversation) jsonPatch() Request {
	o := c.subject()
	body := pick(
		c,
		`[{"op":"add","path":"/metadata/labels","value":{"tier":"web"}}]`,
		`[{"op":"replace","path":"/metadata/labels/tier","value":"db"}]`,
		`[{"op":"remove","path":"/metadata/labels/tier"}]`,
		`[{"op":"test","path":"/metadata/name","value":"n1"}]`,
		`[{"op":"test","path":"/metadata/labels/tier","value":"web"},{"op":"add","path":"/metadata/annotations","value":{"example.com/note":"j"}}]`,
		`[{"op":"remove","path":"/metadata/finalizers"}]`,
		`[{"op":"copy","from":"/metadata/labels","path":"/metadata/annotations"}]`,
		`[{"op":"add","path":"/metadata/finalizers/-","value":"example.com/b"}]`,
		`[]`,
		`{}`,
		`[{"op":"wrong","path":"/x"}]`,
		`[`,
	)
	return Request{Method: http.MethodPatch, Path: o.path(), Form: "application/json-patch+json", Body: body}
}

func (c *Conversation) strategic() Request {
	o := c.subject()
	body := pick(c,
		`{"metadata":{"labels":{"tier":"web"}}}`, `{"metadata":{"labels":{"tier":null}}}`, `{"metadata":{"finalizers":["example.com/b"]}}`,
		`{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/a"]}}`, `{"metadata":{"labels":{"$patch":"replace","app":"s"}}}`,
		`{"metadata":{"annotations":null}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/b"]}}`, `[]`, `{`)
	if o.kind.resource == "deployments" && c.chance(2) {
		body = fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i%d"}]}}}}`, c.random.IntN(3))
	}
	if o.kind.resource == "pods" && c.chance(2) {
		body = fmt.Sprintf(`{"spec":{"containers":[{"name":"c","image":"i%d"}]}}`, c.random.IntN(3))
	}
	return Request{Method: http.MethodPatch, Path: o.path(), Form: "application/strategic-merge-patch+json", Body: body}
}

func (c *Conversation) apply() Request {
	o := c.subject()
	for o.kind.resource == "pods" || o.namespace != c.Namespace {
		o = &object{kind: pick(c, kinds()...), namespace: c.Namespace, name: c.name(nil)}
	}
	more := ""
	if c.chance(6) {
		more = pick(c, `"finalizers":["example.com/a"]`, `"annotations":{"example.com/note":"applied"}`, `"resourceVersion":"5"`, `"uid":"none"`,
			`"finalizers":["example.com/a","example.com/b"]`)
	}
	options := pick(
		c,
		"?fieldManager=a",
		"?fieldManager=b",
		"?fieldManager=a&force=true",
		"?fieldManager=b&force=true",
		"?fieldManager=b&force=true",
	)
	if c.chance(20) {
		options = pick(c, "", "?force=true", "?fieldManager=a&dryRun=All")
	}
	subresource := ""
	if o.kind.status && c.chance(6) {
		subresource = "/status"
	}
	body := o.kind.full(o.name, c.labels(), more, c.random.IntN(3), "")
	if c.chance(40) {
		body = pick(c, o.kind.full("another", "", "", 1, ""), `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"n1"}}`, `{"a":1}`)
	}
	return Request{Method: http.MethodPatch, Path: o.path() + subresource + options, Form: "application/apply-patch+yaml", Body: body}
}
