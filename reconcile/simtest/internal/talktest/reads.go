package talktest

import (
	"net/http"
	"net/url"
	"strings"
)

const partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

func (c *Conversation) get() Request {
	o := c.subject()
	r := Request{Method: http.MethodGet, Path: o.path()}
	switch c.random.IntN(12) {
	case 0:
		r.Accept = partial
	case 1:
		r.Accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
	case 2:
		r.Path += pick(c, "?resourceVersion=x", "/status", "/scale")
	case 3:
		if o.now[0] != "" {
			r.Path += "?resourceVersion={{now " + o.id() + "}}"
		}
	}
	return r
}

func (c *Conversation) list() Request {
	k := pick(c, kinds()...)
	r := Request{Method: http.MethodGet, Path: k.path(c.Namespace)}
	switch c.random.IntN(8) {
	case 0:
		r.Path = k.path(c.Namespace + "-b")
	case 1:
		r.Path = k.root + "/" + k.resource
	case 2:
		r.Accept = strings.Replace(partial, "Metadata", "MetadataList", 1)
	case 3:
		r.Accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
	}
	query := url.Values{}
	if c.chance(2) {
		query.Set(
			"labelSelector",
			pick(c, "tier", "!tier", "tier=web", "tier!=web", "tier==db,app=shop", "tier in (web,db)", "tier notin (web),app",
				"tier in (db)", "app in (shop,)", "app=", "tier notin (web,db),!app", "tier in (", "a b", "tier in web", "tier=web,", "=x", "tier<5"),
		)
	}
	if c.chance(4) {
		query.Set("fieldSelector", pick(
			c,
			"metadata.name=n1",
			"metadata.name!=n1",
			"metadata.namespace="+c.Namespace,
			"metadata.namespace=other",
			"spec.nodeName=node-1",
			"spec.nodeName!=node-1",
			"status.phase=Running",
			"status.phase=Running,metadata.name!=n1",
			"spec.size=1",
			"data.k=1",
			"status.replicas=1",
			"nothing",
			"spec.restartPolicy=Always",
		))
	}
	if len(query) > 0 {
		r.Path += "?" + query.Encode()
	}
	return r
}

// page reads a list in parts.
func (c *Conversation) page() Request {
	k := pick(c, kinds()...)
	path := k.path(c.Namespace)
	if c.tokens[path][0] != "" && !c.chance(4) {
		return Request{
			Method: http.MethodGet,
			Path:   path + pick(c, "?limit=1", "?limit=2", "?limit=500", "?") + "&continue={{token " + path + "}}",
		}
	}
	if m, ok := c.lists[path]; ok && c.step-m.step < 60 && c.chance(3) {
		return Request{
			Method: http.MethodGet,
			Path: path + pick(c, "?resourceVersionMatch=Exact", "?resourceVersionMatch=NotOlderThan", "?limit=2",
				"?limit=1&resourceVersionMatch=Exact", "?resourceVersionMatch=Wrong", "?") + "&resourceVersion={{list " + path + "}}",
		}
	}
	return Request{
		Method: http.MethodGet,
		Path: path + pick(c, "?limit=1", "?limit=2", "?limit=3", "?limit=2&labelSelector=tier", "?limit=x", "?limit=-1",
			"?limit=1&labelSelector=tier%3Dweb", "?continue=wrong", "?resourceVersion=x", "?resourceVersionMatch=Exact", "?limit=0"),
	}
}
