package controltest

import (
	"crypto/sha256"
	"io"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
)

// CutAfter ends each stream without an error after so many orders.
func CutAfter(most int) Lie {
	return func(m ctrlv1.Message, orders int) ([]ctrlv1.Message, error) {
		if order, _ := ctrlv1.Carried(m); order != nil && orders >= most {
			return nil, io.EOF
		}
		return []ctrlv1.Message{m}, nil
	}
}

// Synced changes what the end of each list states.
func Synced(change func(*ctrlv1.Synced)) Lie {
	return func(m ctrlv1.Message, _ int) ([]ctrlv1.Message, error) {
		if s := m.GetSynced(); s != nil {
			change(s)
		}
		return []ctrlv1.Message{m}, nil
	}
}

// WrongCount states one order more than there were, WrongDigest another digest.
func WrongCount() Lie { return Synced(func(s *ctrlv1.Synced) { s.Count++ }) }

// WrongDigest is described at WrongCount.
func WrongDigest() Lie { return Synced(func(s *ctrlv1.Synced) { s.Digest[0]++ }) }

// Early states another count, and sends bookmarks of that epoch before the first order, as a long list has them in its middle.
func Early(epoch string) Lie {
	wrong := WrongCount()
	return func(m ctrlv1.Message, orders int) ([]ctrlv1.Message, error) {
		all, err := wrong(m, orders)
		if orders == 0 {
			first, _ := m.ProtoReflect().New().Interface().(ctrlv1.Message)
			ctrlv1.Put(first, &ctrlv1.Bookmark{Epoch: epoch}, 0)
			all = append([]ctrlv1.Message{first}, all...)
		}
		return all, err
	}
}

// Hide leaves out all orders, and states lists that fit, as a control plane does that has lost its rows.
func Hide() Lie {
	empty := sha256.Sum256(nil)
	none := Synced(func(s *ctrlv1.Synced) { s.Count, s.Digest = 0, empty[:] })
	return func(m ctrlv1.Message, orders int) ([]ctrlv1.Message, error) {
		if order, _ := ctrlv1.Carried(m); order != nil {
			return nil, nil
		}
		return none(m, orders)
	}
}

// NoMarks leaves out the marks, as an older control plane does.
func NoMarks() Lie {
	return func(m ctrlv1.Message, _ int) ([]ctrlv1.Message, error) {
		if s := m.GetSynced(); s != nil {
			s.Mark = ""
		}
		if b := m.GetBookmark(); b != nil {
			b.Mark = ""
		}
		return []ctrlv1.Message{m}, nil
	}
}
