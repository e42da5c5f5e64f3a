package view

import "unique"

// part is the list of the objects of one kind whose part label has one value.
type part struct {
	value unique.Handle[string]
	first *member
}

// member is an object's place in its part. Adding and removing cost the same
// whatever the size of the part.
type member struct {
	part           *part
	name           Name
	previous, next *member
}

// parts is the index of a kind by the part label.
type parts map[unique.Handle[string]]*part

// add puts an object into the part of that value.
func (p parts) add(value string, n Name) *member {
	if value == "" {
		return nil
	}
	key := unique.Make(value)
	in := p[key]
	if in == nil {
		in = &part{value: key}
		p[key] = in
	}
	m := &member{part: in, name: n, next: in.first}
	if m.next != nil {
		m.next.previous = m
	}
	in.first = m
	return m
}

// remove takes an object out of its part, and the part out of the index when it
// is empty.
func (p parts) remove(m *member) {
	if m == nil {
		return
	}
	if m.next != nil {
		m.next.previous = m.previous
	}
	if m.previous != nil {
		m.previous.next = m.next
	} else {
		m.part.first = m.next
	}
	if m.part.first == nil {
		delete(p, m.part.value)
	}
}

// members calls yield for the objects of a part until it returns false.
func (p parts) members(value string, yield func(Name) bool) bool {
	in := p[unique.Make(value)]
	if in == nil {
		return true
	}
	for m := in.first; m != nil; m = m.next {
		if !yield(m.name) {
			return false
		}
	}
	return true
}
