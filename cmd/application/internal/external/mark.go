// Package external is what the things that an application has outside of the cluster have
// in common: marks, which say whose something is, and errors, which say why it cannot be
// as it should.
package external

import (
	"fmt"
	"strings"
)

// prefix is what each mark begins with.
const prefix = "platform.internal"

const retained = "retained"

// Mark says for which object something was made. Its text is the comment of a schema and
// of a role, the tag of a bucket and the attribute of a realm.
type Mark struct {
	// Cluster identifies the cluster of the object, Namespace, Name and UID the object.
	// None has a space. The Name for a copy of an Application is the Application's, a
	// slash, and what the copy is for.
	Cluster, Namespace, Name, UID string
	// Retained is whether the object was deleted, and the thing was left for the next object
	// of its name.
	Retained bool
}

// String returns the text of the mark.
func (m Mark) String() string {
	text := fmt.Sprintf("%s cluster=%s namespace=%s name=%s uid=%s", prefix, m.Cluster, m.Namespace, m.Name, m.UID)
	if m.Retained {
		text += " " + retained
	}
	return text
}

// App returns the name of the Application that the object is, or is a copy of.
func (m Mark) App() string {
	app, _, _ := strings.Cut(m.Name, "/")
	return app
}

// ParseMark reads the text of a mark. What follows it is ignored.
func ParseMark(text string) (m Mark, ok bool) {
	fields := strings.Fields(text)
	if len(fields) < 5 || fields[0] != prefix {
		return Mark{}, false
	}
	for i, field := range []struct {
		name string
		into *string
	}{{"cluster=", &m.Cluster}, {"namespace=", &m.Namespace}, {"name=", &m.Name}, {"uid=", &m.UID}} {
		value, found := strings.CutPrefix(fields[i+1], field.name)
		if !found || value == "" {
			return Mark{}, false
		}
		*field.into = value
	}
	m.Retained = len(fields) > 5 && fields[5] == retained
	return m, true
}

// Claim is what an object may do with something that exists.
type Claim int

const (
	// Foreign belongs to another: it must not be touched.
	Foreign Claim = iota
	// Ours was made for this very object.
	Ours
	// Adoptable was left by an object of the same name in the same namespace.
	Adoptable
)

// Claim says what the object of this mark may do with something that has this text as
// its mark.
func (m Mark) Claim(text string) Claim {
	found, ok := ParseMark(text)
	switch {
	case !ok || found.Cluster != m.Cluster || found.Namespace != m.Namespace || found.Name != m.Name:
		return Foreign
	case found.Retained:
		return Adoptable
	case found.UID == m.UID:
		return Ours
	default:
		return Foreign
	}
}

// Owned returns [ErrOwnedByOther] about something, with its owner as the text of its mark
// names it.
func Owned(what, text string) error {
	found, ok := ParseMark(text)
	if !ok {
		return fmt.Errorf("%s exists and has no mark of this operator: %w; remove it, or choose another name", what, ErrOwnedByOther)
	}
	left := ""
	if found.Retained {
		left = ", which is gone and has left it"
	}
	return fmt.Errorf("%s belongs to %s/%s (UID %s) of cluster %s%s: %w; remove that, or choose another name",
		what, found.Namespace, found.Name, found.UID, found.Cluster, left, ErrOwnedByOther)
}
