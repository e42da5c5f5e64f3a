package external

import (
	"fmt"
	"strings"
)

const retained = "retained"

// Mark says for which object a thing was made. Its text is kept in the service, with the thing: as a
// comment, a tag or an attribute. It is a value without state, safe for concurrent use.
type Mark struct {
	// Domain is the DNS name of the operator, such as dns.example.com. What has a mark of another
	// domain is foreign.
	Domain string
	// Cluster identifies the cluster of the object, such as by the UID of its namespace
	// kube-system. Namespace, Name and UID are those of the object. None has a space or is empty.
	Cluster, Namespace, Name, UID string
	// Retained is whether the object was deleted, and the thing was left for the next object
	// of its name.
	Retained bool
}

// String returns the text of the mark.
func (m Mark) String() string {
	text := fmt.Sprintf("%s cluster=%s namespace=%s name=%s uid=%s", m.Domain, m.Cluster, m.Namespace, m.Name, m.UID)
	if m.Retained {
		text += " " + retained
	}
	return text
}

// ParseMark reads the text of a mark of a domain. What follows it is ignored. It returns false for
// any other text.
func ParseMark(domain, text string) (m Mark, ok bool) {
	fields := strings.Fields(text)
	if len(fields) < 5 || fields[0] != domain {
		return Mark{}, false
	}
	m.Domain = domain
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

// Claim is what an object may do with something that has the name of one of its things.
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
	found, ok := ParseMark(m.Domain, text)
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

// Owned returns [ErrOwnedByOther] about something, such as "record www", with its owner as the text
// of its mark of the domain names it.
func Owned(domain, what, text string) error {
	found, ok := ParseMark(domain, text)
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
