// Package external is what the things that an application has outside of the cluster have
// in common: marks, which say whose something is, and errors, which say why it cannot be
// as it should.
package external

import (
	"strings"

	outside "github.com/seed-9e1ffd66/trueup/reconcile/external"
)

// domain is what each mark begins with.
const domain = "platform.internal"

// Mark says for which object something was made. Its text is the comment of a schema and
// of a role, the tag of a bucket and the attribute of a realm. The Name for a copy of an
// Application is the Application's, a slash, and what the copy is for. Domain is not set.
type Mark outside.Mark

// String returns the text of the mark.
func (m Mark) String() string { return m.of().String() }

// Claim says what the object of this mark may do with something that has this text as
// its mark.
func (m Mark) Claim(text string) outside.Claim { return m.of().Claim(text) }

func (m Mark) of() outside.Mark {
	m.Domain = domain
	return outside.Mark(m)
}

// App returns the name of the Application that the object is, or is a copy of.
func (m Mark) App() string {
	app, _, _ := strings.Cut(m.Name, "/")
	return app
}

// ParseMark reads the text of a mark. What follows it is ignored.
func ParseMark(text string) (Mark, bool) {
	m, ok := outside.ParseMark(domain, text)
	m.Domain = ""
	return Mark(m), ok
}

// What an object may do with something that exists.
const (
	Foreign   = outside.Foreign
	Ours      = outside.Ours
	Adoptable = outside.Adoptable
)

// Claim is one of these.
type Claim = outside.Claim

// Owned returns [ErrOwnedByOther] about something, with its owner as the text of its mark
// names it.
func Owned(what, text string) error { return outside.Owned(domain, what, text) }
