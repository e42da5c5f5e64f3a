package diff

// States reports whether a live object states everything that a desired one
// does: for objects whose server keeps no managedFields. Both
// are decoded JSON objects.
//
// It compares contents. Maps are compared by key, and what the live one has
// beyond is no difference. Lists whose items all have a name of their own are
// compared by that name, in any order, and what the live one has beyond is no
// difference either; others item by item, and they must be as long. Numbers are
// compared by value, and the quantities of Kubernetes' own kinds by what they
// mean. What is null, false, 0, "" or empty in the desired object may be absent
// in the live one.
//
// So it cannot see a field that the desired object no longer states; it cannot show
// which manager wrote a field; and it takes a value that the server rewrites (a
// duration, a case) or a list that it completes for a difference, at each look.
// [Fields] shows the same differences for an object that is not [Tracked].
func States(live, desired map[string]any) bool {
	w := newWalker(desired, nil, Options{}, nil)
	w.object(desired, live)
	return len(w.fields) == 0
}
