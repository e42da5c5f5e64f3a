package auth //nolint:testpackage // a realm is not exported

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
)

func wanted(namespace, share string, sharedWith ...string) Want {
	origin := "https://" + share + "." + namespace + ".example.com"
	return Want{
		Realm: "shop", Client: "shop", Share: share, Redirects: []string{origin + "/*"}, Origins: []string{origin}, SharedWith: sharedWith,
		Mark: external.Mark{Cluster: "c", Namespace: namespace, Name: "shop", UID: "uid-" + namespace + "-" + share},
	}
}

// made runs a pass for each Want on one realm. It returns the UIDs that were refused, and the
// redirect URIs of the realm.
func made(t *testing.T, earlier map[string]string, passes ...Want) (refused, redirects []string) {
	t.Helper()
	r := &realm{Attributes: map[string]string{}}
	maps.Copy(r.Attributes, earlier)
	if len(earlier) == 0 {
		r.Attributes[homeKey] = passes[0].Mark.String()
	}
	for _, w := range passes {
		if err := r.claim(w); err != nil {
			require.ErrorIs(t, err, external.ErrOwnedByOther)
			refused = append(refused, w.Mark.UID)
			continue
		}
		r.settle(w)
		require.False(t, r.settle(w), "at rest nothing changes")
	}
	return refused, r.values(redirectField)
}

// TestHostileRealms covers attempts of others to use the realm of namespace team.
func TestHostileRealms(t *testing.T) {
	t.Parallel()
	owner, copied := wanted("team", "production"), wanted("team", "pr5")
	copied.Mark.Name = "shop/pr-5"
	retained := owner.Mark
	retained.Retained = true
	before := map[string]string{owner.key(): owner.owner(), wanted("evil", "uat").key(): wanted("evil", "uat").owner()}
	other := wanted("evil", "uat")
	other.Mark.Name = "shop/pr-1"
	foreignCluster := wanted("team", "uat")
	foreignCluster.Mark.Cluster = "another"
	successor := wanted("evil", "production")
	for name, c := range map[string]struct {
		earlier   map[string]string
		passes    []Want
		refused   []string
		redirects []string
	}{
		"another namespace joins":        {nil, []Want{owner, wanted("evil", "uat")}, []string{"uid-evil-uat"}, owner.Redirects},
		"its copy joins":                 {nil, []Want{owner, other}, []string{"uid-evil-uat"}, owner.Redirects},
		"another cluster joins":          {nil, []Want{owner, foreignCluster}, []string{"uid-team-uat"}, owner.Redirects},
		"it lists itself":                {nil, []Want{owner, wanted("evil", "uat", "evil")}, []string{"uid-evil-uat"}, owner.Redirects},
		"it takes the environment":       {nil, []Want{owner, successor}, []string{"uid-evil-production"}, owner.Redirects},
		"it follows a realm that stays":  {map[string]string{owner.key(): retained.String()}, []Want{successor}, []string{"uid-evil-production"}, []string{}},
		"it joined before":               {before, []Want{owner}, nil, owner.Redirects},
		"and comes again":                {before, []Want{owner, wanted("evil", "uat")}, []string{"uid-evil-uat"}, owner.Redirects},
		"and is first after the upgrade": {before, []Want{wanted("evil", "uat"), owner}, []string{"uid-evil-uat"}, owner.Redirects},
		"a guest invites":                {nil, []Want{wanted("team", "production", "friends"), wanted("friends", "uat", "evil"), wanted("evil", "staging")}, []string{"uid-evil-staging"}, slices.Concat(owner.Redirects, wanted("friends", "uat").Redirects)},
		"a guest takes the environment":  {nil, []Want{wanted("team", "production", "friends"), wanted("friends", "uat"), wanted("team", "uat")}, []string{"uid-team-uat"}, slices.Concat(owner.Redirects, wanted("friends", "uat").Redirects)},
		"a guest that is listed no more": {nil, []Want{wanted("team", "production", "friends"), wanted("friends", "uat"), owner, wanted("friends", "uat")}, []string{"uid-friends-uat"}, owner.Redirects},
		"the own namespace is no attack": {nil, []Want{owner, wanted("team", "staging"), copied}, nil, slices.Concat(copied.Redirects, owner.Redirects, wanted("team", "staging").Redirects)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused, redirects := made(t, c.earlier, c.passes...)
			require.Equal(t, c.refused, refused)
			require.ElementsMatch(t, c.redirects, redirects)
		})
	}
}
