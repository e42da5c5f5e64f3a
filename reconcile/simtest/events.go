package simtest

// Events of events.k8s.io are those of the core group with other names of fields.
// They are stored as the latter, so that either shows what was written as the other.

// renamed are the fields of an Event in events.k8s.io, by those in the core group.
var renamed = map[string]string{ //nolint:gochecknoglobals // never changed
	"involvedObject": "regarding", "message": "note", "source": "deprecatedSource", "count": "deprecatedCount",
	"firstTimestamp": "deprecatedFirstTimestamp", "lastTimestamp": "deprecatedLastTimestamp", "reportingComponent": "reportingController",
}

const eventsGroup = "events.k8s.io"

// renames reports whether the objects of the kind are stored with other names of
// fields.
func (k Kind) renames() bool { return k.Group == eventsGroup && k.Resource == "events" }

// storedGroup is the group under which the objects of a resource are stored.
func storedGroup(group, resource string) string {
	if group == eventsGroup && resource == "events" {
		return ""
	}
	return group
}

// storedVersion is the apiVersion of the stored objects.
func (k Kind) storedVersion() string {
	if k.renames() {
		return "v1"
	}
	return k.apiVersion()
}

// toStored returns an object that a client has sent as it is stored.
func (k Kind) toStored(o Object) Object {
	if !k.renames() || o == nil {
		return o
	}
	o = shallow(o)
	for stored, name := range renamed {
		if value, ok := o[name]; ok {
			o[stored] = value
			delete(o, name)
		}
	}
	o["apiVersion"] = k.storedVersion()
	return o
}

// fromStored returns a stored object as clients of the kind see it.
func (k Kind) fromStored(o Object) Object {
	if !k.renames() || o == nil || o["kind"] != k.Kind {
		return o
	}
	o = shallow(o)
	for stored, name := range renamed {
		if value, ok := o[stored]; ok {
			o[name] = value
			delete(o, stored)
		}
	}
	o["apiVersion"] = k.apiVersion()
	return o
}
