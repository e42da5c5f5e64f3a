package talktest

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// fill puts what one server calls things into a request, in place of what stands in
// double braces.
func (c *Conversation) fill(i int, text string) string {
	var all strings.Builder
	for {
		before, after, ok := strings.Cut(text, "{{")
		all.WriteString(before)
		if !ok {
			return all.String()
		}
		var inner string
		inner, text, _ = strings.Cut(after, "}}")
		what, name, _ := strings.Cut(inner, " ")
		o := c.objects[name]
		if o == nil {
			o = &object{}
		}
		switch what {
		case "uid":
			all.WriteString(o.uid[i])
		case "now":
			all.WriteString(o.now[i])
		case "then":
			all.WriteString(o.then[i])
		case "name":
			all.WriteString(o.real[i])
		case "token":
			all.WriteString(c.tokens[name][i])
		case "list":
			all.WriteString(c.lists[name].version[i])
		}
	}
}

// forget drops an object of a generated name that does not exist any more.
func (c *Conversation) forget(r Request) {
	_, after, ok := strings.Cut(r.Path, "{{name ")
	id, _, _ := strings.Cut(after, "}}")
	if o := c.objects[id]; ok && o != nil && o.namespace != c.Namespace {
		delete(c.objects, id)
	}
}

// call gives what one server has named a name that both have. Both name things in
// the same order.
func (c *Conversation) call(i int, own, kind string) string {
	if own == "" {
		return ""
	}
	if c.names[i][own] == "" {
		c.names[i][own] = fmt.Sprintf("%s%d", kind, len(c.names[i]))
	}
	return c.names[i][own]
}

// normal is the body of an answer without what differs.
func (c *Conversation) normal(i int, r Request, body map[string]any) map[string]any {
	switch body["kind"] {
	case "Status":
		return c.normalStatus(i, body)
	case "APIResourceList", "APIGroupList", "APIGroupDiscoveryList":
		return normalDocument(body)
	}
	if value, ok := body["items"]; ok {
		items, _ := value.([]any)
		return c.normalList(i, r, body, items)
	}
	if rows, ok := body["rows"].([]any); ok {
		return c.normalTable(i, rows)
	}
	return c.normalObject(i, body)
}

// normalDocument is what a document of discovery says about the kinds of the
// conversation. The order of verbs differs, and the Server does not know of categories.
func normalDocument(body map[string]any) map[string]any {
	known := []string{"example.com", "apps", "policy", "events.k8s.io", "coordination.k8s.io"}
	for _, k := range Kinds() {
		known = append(known, k.Resource)
	}
	all := map[string]any{"kind": body["kind"], "groupVersion": body["groupVersion"]}
	for _, list := range []string{"groups", "items", "resources"} {
		items, _ := body[list].([]any)
		found := map[string]any{}
		for _, each := range items {
			item, _ := each.(map[string]any)
			name := field(item, "name") + field(item, "metadata", "name")
			if base, _, _ := strings.Cut(name, "/"); slices.Contains(known, base) && name != "pods/ephemeralcontainers" {
				found[name] = normalItem(item)
			}
		}
		for _, absent := range []string{"pods/attach", "pods/exec", "pods/log", "pods/portforward", "pods/proxy", "pods/resize"} {
			delete(found, absent)
		}
		all[list] = found
	}
	return all
}

// normalItem sorts the verbs, at any depth, and drops what only the real server knows.
func normalItem(value any) any {
	switch v := value.(type) {
	case map[string]any:
		all := map[string]any{}
		for name, each := range v {
			if slices.Contains([]string{"storageVersionHash", "categories", "shortNames", "creationTimestamp"}, name) {
				continue
			}
			all[name] = normalItem(each)
		}
		if resources, ok := all["resources"].([]any); ok {
			all["resources"] = slices.DeleteFunc(resources, func(each any) bool {
				r, _ := each.(map[string]any)
				return !slices.ContainsFunc(Kinds(), func(k simtest.Kind) bool { return k.Resource == r["resource"] }) && r["resource"] != "events" &&
					r["resource"] != "leases"
			})
		}
		return all
	case []any:
		all := make([]any, 0, len(v))
		for _, each := range v {
			all = append(all, normalItem(each))
		}
		if len(all) > 0 {
			if _, ok := all[0].(string); ok {
				slices.SortFunc(all, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			}
		}
		return all
	}
	return value
}

func (c *Conversation) normalStatus(i int, body map[string]any) map[string]any {
	all := map[string]any{"kind": "Status"}
	for _, field := range []string{"status", "reason", "code"} {
		if value := body[field]; value != nil && value != "" {
			all[field] = value
		}
	}
	if body["text"] != nil || body["message"] == "the server could not find the requested resource" {
		return map[string]any{"kind": "Status", "reason": "NotFound"}
	}
	if metadata, ok := body["metadata"].(map[string]any); ok && metadata["continue"] != nil {
		all["continue"] = true
	}
	details, _ := body["details"].(map[string]any)
	for _, field := range []string{"group", "kind", "name", "uid"} {
		value, _ := details[field].(string)
		if value == "" {
			continue
		}
		if field == "uid" {
			value = c.call(i, value, "uid")
		}
		if name := c.names[i][value]; name != "" {
			value = name
		} else if strings.HasPrefix(value, "g-") {
			value = "a generated name"
		}
		all["details."+field] = value
	}
	switch all["reason"] {
	case "NotFound", "AlreadyExists":
		all["message"] = c.told(i, fmt.Sprint(body["message"]))
	}
	return all
}

// told replaces the names in a message.
func (c *Conversation) told(i int, text string) string {
	words := strings.Split(text, `"`)
	for n, word := range words {
		if name := c.names[i][word]; name != "" {
			words[n] = name
		}
	}
	return strings.Join(words, `"`)
}

func (c *Conversation) mine(o map[string]any) bool {
	namespace := field(o, "metadata", "namespace")
	return namespace == "" || namespace == c.Namespace || namespace == c.Namespace+"-b"
}

func (c *Conversation) normalList(i int, r Request, body map[string]any, items []any) map[string]any {
	var all []any
	var objects []map[string]any
	for _, each := range items {
		if o, ok := each.(map[string]any); ok && c.mine(o) {
			objects = append(objects, o)
		}
	}
	if !strings.Contains(r.Path, "/namespaces/"+c.Namespace+"/") { // generated names have another order
		slices.SortStableFunc(objects, func(a, b map[string]any) int { return strings.Compare(c.sorted(i, a), c.sorted(i, b)) })
	}
	for _, o := range objects {
		all = append(all, c.normalObject(i, o))
	}
	metadata, _ := body["metadata"].(map[string]any)
	return map[string]any{
		"kind": body["kind"], "apiVersion": body["apiVersion"], "items": all, "continue": field(body, "metadata", "continue") != "",
		"left": metadata["remainingItemCount"], "versioned": metadata["resourceVersion"] != "",
	}
}

func (c *Conversation) sorted(i int, o map[string]any) string {
	name := field(o, "metadata", "name")
	if known := c.names[i][name]; known != "" {
		name = known
	}
	return field(o, "metadata", "namespace") + "/" + name
}

func (c *Conversation) normalTable(i int, rows []any) map[string]any {
	var all []any
	for _, each := range rows {
		row, _ := each.(map[string]any)
		cells, _ := row["cells"].([]any)
		if o, ok := row["object"].(map[string]any); ok && c.mine(o) {
			all = append(all, c.normalObject(i, o))
		} else if !ok {
			all = append(all, cells[0])
		}
	}
	return map[string]any{"kind": "Table", "rows": all}
}

// normalObject is an object without times and managers, with names instead of UIDs
// and versions.
func (c *Conversation) normalObject(i int, o map[string]any) map[string]any {
	copied, _ := pruned(o).(map[string]any)
	metadata, ok := copied["metadata"].(map[string]any)
	if !ok {
		return copied
	}
	delete(metadata, "managedFields")
	for _, field := range []string{"creationTimestamp", "deletionTimestamp"} {
		if metadata[field] != nil {
			metadata[field] = "a time"
		}
	}
	if text, ok := metadata["uid"].(string); ok {
		metadata["uid"] = c.call(i, text, "uid")
	}
	if text, ok := metadata["resourceVersion"].(string); ok {
		metadata["resourceVersion"] = c.call(i, text, "version")
	}
	if text, ok := metadata["name"].(string); ok && (metadata["generateName"] != nil || c.names[i][text] != "") {
		metadata["name"] = c.call(i, text, "name")
	}
	owners, _ := metadata["ownerReferences"].([]any)
	for _, each := range owners {
		r, _ := each.(map[string]any)
		if text, ok := r["uid"].(string); ok && c.names[i][text] != "" {
			r["uid"] = c.names[i][text]
		}
	}
	return copied
}

// pruned copies a value without nulls, empty maps and lists, and times.
func pruned(value any) any {
	switch v := value.(type) {
	case map[string]any:
		all := map[string]any{}
		for name, each := range v {
			if name == "lastTransitionTime" || name == "lastProbeTime" {
				continue
			}
			if left := pruned(each); left != nil {
				all[name] = left
			}
		}
		if len(all) == 0 {
			return nil
		}
		return all
	case []any:
		var all []any
		for _, each := range v {
			all = append(all, pruned(each))
		}
		if len(all) == 0 {
			return nil
		}
		return all
	}
	return value
}

func field(o map[string]any, path ...string) string {
	var value any = o
	for _, name := range path {
		inner, _ := value.(map[string]any)
		value = inner[name]
	}
	text, _ := value.(string)
	return text
}

// differing are the paths at which two values differ.
func differing(path string, a, b any) []string {
	first, ok := a.(map[string]any)
	second, also := b.(map[string]any)
	if !ok || !also {
		list, ok := a.([]any)
		other, also := b.([]any)
		if !ok || !also || len(list) != len(other) {
			if reflect.DeepEqual(a, b) {
				return nil
			}
			return []string{fmt.Sprintf("%s: %v and %v", path, a, b)}
		}
		var all []string
		for n := range list {
			all = append(all, differing(fmt.Sprintf("%s[%d]", path, n), list[n], other[n])...)
		}
		return all
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(first)) {
		all = append(all, differing(path+"."+name, first[name], second[name])...)
	}
	for _, name := range slices.Sorted(maps.Keys(second)) {
		if _, ok := first[name]; !ok {
			all = append(all, fmt.Sprintf("%s.%s: nothing and %v", path, name, second[name]))
		}
	}
	return all
}

// learn remembers what the answers say about objects.
func (c *Conversation) learn(r Request, raw [2]Answer) {
	path, _, _ := strings.Cut(r.Path, "?")
	if raw[0].Code == http.StatusNotFound {
		c.forget(r)
	}
	if raw[0].Body["kind"] != raw[1].Body["kind"] || raw[0].Code != raw[1].Code || strings.Contains(r.Body, "dryRun") ||
		strings.Contains(r.Path, "dryRun") || strings.HasSuffix(path, "/scale") {
		return
	}
	if _, ok := raw[0].Body["items"]; ok {
		c.tokens[path] = [2]string{field(raw[0].Body, "metadata", "continue"), field(raw[1].Body, "metadata", "continue")}
		if !strings.Contains(r.Path, "resourceVersion") && !strings.Contains(r.Path, "continue") {
			c.lists[path] = mark{
				c.step,
				[2]string{field(raw[0].Body, "metadata", "resourceVersion"), field(raw[1].Body, "metadata", "resourceVersion")},
			}
		}
		return
	}
	k := kindOf(r.Path)
	if k == nil || field(raw[0].Body, "metadata", "uid") == "" {
		return
	}
	namespace := field(raw[0].Body, "metadata", "namespace")
	called := field(raw[0].Body, "metadata", "name")
	if name := c.names[0][called]; name != "" {
		called = name
	}
	if strings.HasPrefix(called, "last-") {
		return // it ends a watch
	}
	name := k.resource + " " + namespace + " " + called
	o := c.objects[name]
	if o == nil {
		o = &object{kind: k, namespace: namespace, name: called}
		c.objects[name] = o
	}
	for i := range raw {
		o.real[i] = field(raw[i].Body, "metadata", "name")
		if version := field(raw[i].Body, "metadata", "resourceVersion"); version != o.now[i] {
			o.then[i], o.now[i] = o.now[i], version
		}
		o.uid[i] = field(raw[i].Body, "metadata", "uid")
	}
	if raw[0].Body["spec"] != nil { // and not the metadata alone
		o.node = field(raw[0].Body, "spec", "nodeName")
	}
}
