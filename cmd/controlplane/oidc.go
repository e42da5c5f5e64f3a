package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// oidcOptions are the flags of the sign-in with OpenID Connect.
type oidcOptions struct {
	issuer, clientID, clientSecretFile, caFile string
	groupsFile, usernameClaim, groupsClaim     string
	externalURL                                string
}

const (
	standardUsername = "preferred_username"
	standardGroups   = "groups"
)

func (o *oidcOptions) flags(flags *pflag.FlagSet) {
	flags.StringVar(&o.issuer, "oidc-issuer", "",
		"URL of the issuer of OpenID Connect with which people sign in, as its tokens name it; "+
			"https, or http on this machine; none: tokens alone")
	flags.StringVar(&o.clientID, "oidc-client-id", "", "id of the client at the issuer, which ID tokens must be for")
	flags.StringVar(&o.clientSecretFile, "oidc-client-secret-file", "",
		"file with the secret of the client; none: it is public, and has PKCE alone, which the command line needs")
	flags.StringVar(&o.caFile, "oidc-ca-file", "", "PEM file with the authority of the issuer's certificate; none: the system's authorities")
	flags.StringVar(&o.groupsFile, "oidc-groups-file", "",
		"file with the roles of groups, one a line: role=reader, operator or administrator, projects= and regions= of an operator, "+
			"and the name of the group; read again while the program runs")
	flags.StringVar(&o.usernameClaim, "oidc-username-claim", standardUsername, "claim of the ID token with the name of the person")
	flags.StringVar(&o.groupsClaim, "oidc-groups-claim", standardGroups, "claim of the ID token with the groups of the person")
	flags.StringVar(&o.externalURL, "external-url", "",
		"URL where browsers reach this program, without a path, to which the issuer sends them back; https, or http on this machine")
}

// people returns those who sign in with OpenID Connect and the file of their groups, nil without
// an issuer. The issuer is not asked.
func (o oidcOptions) people(ctx context.Context, logger *slog.Logger) (_ *oidcauth.People, _ *tokens.GroupFile, err error) {
	if err := o.check(); err != nil || o.issuer == "" {
		return nil, nil, err
	}
	secret := ""
	if o.clientSecretFile != "" {
		if secret, err = program.ReadToken(o.clientSecretFile); err != nil {
			return nil, nil, wrongFile("oidc-client-secret-file", o.clientSecretFile, err)
		}
	}
	transport, err := program.Transport("oidc-ca-file", o.caFile)
	if err != nil {
		return nil, nil, err
	}
	const patience = 10 * time.Second
	groups := &tokens.GroupFile{Path: o.groupsFile, Logger: logger}
	if err := groups.Read(ctx); err != nil {
		return nil, nil, wrongFile("oidc-groups-file", o.groupsFile, err)
	}
	people, err := oidcauth.New(oidcauth.Config{
		Issuer: o.issuer, ClientID: o.clientID, ClientSecret: secret, Groups: groups, Logger: logger,
		UsernameClaim: o.usernameClaim, GroupsClaim: o.groupsClaim,
		ExternalURL: strings.TrimSuffix(o.externalURL, "/"),
		HTTP:        &http.Client{Transport: transport, Timeout: patience, CheckRedirect: program.NoRedirect},
	})
	return people, groups, err
}

// isOrigin reports whether a URL has no path.
func isOrigin(text string) bool {
	to, err := url.Parse(text)
	return err == nil && strings.Trim(to.Path, "/") == ""
}

// check returns a usage error for settings that are missing, wrong, or without effect.
func (o oidcOptions) check() error {
	needed := []struct{ flag, value, must string }{
		{"oidc-client-id", o.clientID, "the id of the client at the issuer"},
		{"oidc-groups-file", o.groupsFile, "a file with the roles of groups"},
		{"external-url", o.externalURL, "the URL where browsers reach this program, such as https://control.example.com"},
	}
	if o.externalURL != "" && (!program.Encrypted(o.externalURL) || !isOrigin(o.externalURL)) {
		return wrong("external-url",
			"is %q, must be a URL of https, or of http on this machine, without a path, such as https://control.example.com",
			program.Shown(o.externalURL))
	}
	for flag, value := range map[string]string{"oidc-username-claim": o.usernameClaim, "oidc-groups-claim": o.groupsClaim} {
		if value == "" {
			return wrong(flag, `is "", must be the name of a claim`)
		}
	}
	if o.issuer == "" {
		for _, set := range append(needed, []struct{ flag, value, must string }{
			{"oidc-client-secret-file", o.clientSecretFile, ""},
			{"oidc-ca-file", o.caFile, ""},
			{"oidc-username-claim", other(o.usernameClaim, standardUsername), ""},
			{"oidc-groups-claim", other(o.groupsClaim, standardGroups), ""},
		}...) {
			if set.value != "" {
				return wrong(set.flag, "is %q, must be unset without --oidc-issuer", program.Shown(set.value))
			}
		}
		return nil
	}
	if !program.Encrypted(o.issuer) {
		return wrong("oidc-issuer", "is %q, must be a URL of https, or of http on this machine, such as https://login.example.com/realms/company",
			program.Shown(o.issuer))
	}
	if strings.ContainsFunc(o.clientID, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		return wrong("oidc-client-id", "is %q, must be the id of the client at the issuer, without spaces", program.Shown(o.clientID))
	}
	for _, other := range needed {
		if other.value == "" {
			return wrong(other.flag, "is not set, must be %s with --oidc-issuer", other.must)
		}
	}
	return nil
}

// other returns the value, or nothing if it is the standard one.
func other(value, standard string) string {
	if value == standard {
		return ""
	}
	return value
}
