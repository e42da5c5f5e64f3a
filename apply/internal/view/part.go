package view

import (
	"slices"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Part is the value of a part label, in the form by which objects are indexed.
type Part struct{ handle unique.Handle[string] }

// PartOf returns the index form of a value of the part label.
func PartOf(value string) Part { return Part{unique.Make(value)} }

// part lists the objects of one kind whose part label has one value, in no order.
type part struct {
	value   Part
	members []member
}

// member is an object in its part. The record has its index, so that adding and
// removing cost the same whatever the size of the part.
type member struct {
	name   Name
	record *Record
}

// parts is the index of a kind by the part label.
type parts map[Part]*part

// add puts an object into the part of that value.
func (p parts) add(value string, n Name, r *Record) {
	r.part, r.at = nil, 0
	if value == "" {
		return
	}
	key := PartOf(value)
	in := p[key]
	if in == nil {
		in = &part{value: key}
		p[key] = in
	}
	r.part, r.at = in, int32(len(in.members)) //nolint:gosec // so many do not fit into memory
	in.members = append(in.members, member{n, r})
}

// reserve makes room for the objects of a first list, in one piece: lists that grow one
// by one would lie scattered among the garbage of decoding.
func (p parts) reserve(objects []*metav1.PartialObjectMetadata, label string) {
	counts := map[string]int{}
	for _, m := range objects {
		if value := m.Labels[label]; value != "" {
			counts[value]++
		}
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	room := make([]member, total)
	for value, n := range counts {
		key := PartOf(value)
		p[key] = &part{value: key, members: room[:0:n]}
		room = room[n:]
	}
}

// replace makes r the record of an object whose record was old, in the same part.
func (parts) replace(old, r *Record) {
	if r.part, r.at = old.part, old.at; r.part != nil {
		r.part.members[r.at].record = r
	}
}

// remove takes an object out of its part, and the part out of the index when it
// is empty.
func (p parts) remove(r *Record) {
	in := r.part
	if in == nil {
		return
	}
	last := len(in.members) - 1
	in.members[r.at] = in.members[last]
	in.members[r.at].record.at = r.at
	in.members[last] = member{}
	in.members = in.members[:last]
	switch {
	case last == 0:
		delete(p, in.value)
	case last < cap(in.members)/4:
		in.members = slices.Clip(slices.Clone(in.members))
	}
}

// each calls yield for the objects of a part until it returns false.
func (p parts) each(of Part, yield func(Name, *Record) bool) bool {
	in := p[of]
	if in == nil {
		return true
	}
	for _, m := range in.members {
		if !yield(m.name, m.record) {
			return false
		}
	}
	return true
}
