package view

import "sync/atomic"

// Hint remembers where the record of one object of one kind is, for a caller that looks at the
// object again and again. With a million objects a map is elsewhere in memory for each of them; a
// list of hints lies in the order of the caller. The zero value remembers nothing. It must not be
// used for another object or another Kind. It is safe for concurrent use.
type Hint struct{ at atomic.Pointer[Record] }

// find returns the record of an object, nil if there is none. The lock is held, at least for
// reading. A nil hint is none.
func (k *Kind) find(n Name, hint *Hint) *Record {
	if hint == nil {
		return k.records[n]
	}
	if r := hint.at.Load(); r != nil && r.traits&replaced == 0 {
		return r
	}
	r := k.records[n]
	hint.at.Store(r)
	return r
}

// Others calls yield for each object that is not stated, in no order, until it returns false, and found
// for each that is. Stated returns one object after the other, with its hint, until there is none more.
// It costs little while all objects are stated. It holds a lock: none of the functions may call a method
// of the view. A kind that is not synced has none. It is for owners without parts.
func (k *Kind) Others(stated func() (Name, *Hint, bool), found func(*Record), yield func(Name, *Record) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state != Served {
		return
	}
	k.round++
	marked := 0
	for n, hint, ok := stated(); ok; n, hint, ok = stated() {
		if r := k.find(n, hint); r != nil && r.part == nil && r.at != k.round {
			r.at = k.round // without a part it is no index
			marked++
			found(r)
		}
	}
	if marked == len(k.records) {
		return
	}
	for n, r := range k.records {
		if (r.part != nil || r.at != k.round) && !yield(n, r) {
			return
		}
	}
}

// OthersOf calls yield for the objects of a part, as Others, if not all of them are stated; then for the
// stated ones, too. No object may be stated twice. Its cost depends on the part only.
func (k *Kind) OthersOf(of Part, stated func() (Name, *Hint, bool), yield func(Name, *Record) bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.state != Served {
		return
	}
	var in *part
	marked := 0
	for n, hint, ok := stated(); ok; n, hint, ok = stated() {
		if r := k.find(n, hint); r != nil && r.part != nil && r.part.value == of {
			in = r.part
			marked++
		}
	}
	if in == nil {
		in = k.parts[of]
	}
	if in == nil || marked == len(in.members) {
		return
	}
	for _, m := range in.members {
		if !yield(m.name, m.record) {
			return
		}
	}
}
