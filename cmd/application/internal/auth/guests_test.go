package auth_test

import (
	"cmp"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/auth"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
)

// of returns what an object of another namespace wants of a realm.
func of(w auth.Want, namespace string) auth.Want {
	w.Mark.Namespace, w.Mark.UID = namespace, "uid-"+namespace
	return w
}

// guests are objects of other namespaces: they join where the owner lists them, leave when
// it lists them no more, and never shut the owner out.
func guests(b *bench) {
	owner, guest := want("guests", "production"), of(want("guests", "uat"), "friends")
	_, err := b.Apply(b.Context(), owner)
	require.NoError(b, err)
	refused := func(w auth.Want, cure ...string) {
		b.Helper()
		before := b.client("guests")
		b.trace.writes = nil
		_, err := b.Apply(b.Context(), w)
		require.ErrorIs(b, err, external.ErrOwnedByOther)
		require.NotContains(b, err.Error(), "team", "the owner's namespace is nothing for strangers")
		require.ErrorContains(b, err, cmp.Or(strings.Join(cure, ""), "spec.auth.sharedWith"))
		require.Empty(b, b.trace.writes)
		require.Equal(b, before, b.client("guests"))
	}
	refused(guest)
	elsewhere := want("guests", "staging")
	elsewhere.Mark.Cluster = "another"
	refused(elsewhere, "choose another name")
	owner.SharedWith = []string{"friends"}
	refused(guest) // it is listed by the owner's pass
	_, err = b.Apply(b.Context(), owner)
	require.NoError(b, err)
	b.quiet(owner)
	_, err = b.Apply(b.Context(), guest)
	require.NoError(b, err)
	b.quiet(guest)
	b.quiet(owner)
	require.Equal(b, []string{owner.Redirects[0], guest.Redirects[0]}, b.client("guests").RedirectURIs)
	// A guest invites no other, and another of its namespace is a guest, too.
	guest.SharedWith = []string{"strangers"}
	_, err = b.Apply(b.Context(), guest)
	require.NoError(b, err)
	b.quiet(owner)
	refused(of(want("guests", "staging"), "strangers"))

	owner.SharedWith = nil
	_, err = b.Apply(b.Context(), owner)
	require.NoError(b, err)
	require.Equal(b, owner.Redirects, b.client("guests").RedirectURIs, "those of the guest are gone")
	b.quiet(owner)
	refused(guest)

	// The owner goes and comes again while a guest stays.
	owner.SharedWith = []string{"friends"}
	for _, w := range []auth.Want{owner, guest} {
		_, err = b.Apply(b.Context(), w)
		require.NoError(b, err)
	}
	_, err = b.Delete(b.Context(), owner, false)
	require.NoError(b, err)
	b.quiet(guest)
	refused(of(want("guests", "production"), "strangers"))
	_, err = b.Apply(b.Context(), owner)
	require.NoError(b, err)
	for _, w := range []auth.Want{owner, guest} {
		_, err = b.Delete(b.Context(), w, false)
		require.NoError(b, err)
	}
	require.False(b, b.there("guests"))
}
