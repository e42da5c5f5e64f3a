package remote

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/client"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/remote/signin"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// signIn returns what signs in to the control plane of the settings.
func (o *options) signIn(sender *http.Client, output io.Writer) (*signin.Client, error) {
	path := o.tokenCache
	if path == "" {
		var err error
		if path, err = signin.DefaultPath(); err != nil {
			return nil, program.Usagef("--token-cache: is not set, must be a file for the sign-ins: %w", err)
		}
	}
	return &signin.Client{Server: o.server, Store: signin.Store{Path: path}, HTTP: sender, Output: output}, nil
}

// signedIn returns the token of the sign-in to the control plane, or an error that names both ways
// to have one.
func (o *options) signedIn(ctx context.Context, sender *http.Client) (token func() (string, error), err error) {
	const must = "--token-file: is not set, must be a file with the token of an administrator"
	session, err := o.signIn(sender, io.Discard)
	if err != nil {
		return nil, program.Usagef(must)
	}
	_, found, err := session.Store.Get(o.server)
	switch {
	case err != nil:
		return nil, program.Usagef("--token-cache: %w", err)
	case !found:
		return nil, program.Usagef(must+"; or sign in to %s first, with controlplane login", program.Shown(o.server))
	}
	return func() (string, error) { return session.Token(ctx) }, nil
}

// me is what the control plane says of the one who asks.
type me struct {
	Actor string `json:"actor"`
	Role  string `json:"role"`
	Scope string `json:"scope"`
}

func loginCommand() *cobra.Command {
	var o options
	var device, offline bool
	command := &cobra.Command{
		Use:   "login",
		Short: "Sign in to a running control plane with OpenID Connect",
		Long: `Sign in to a running control plane with OpenID Connect.

It prints the address of the issuer that the control plane names. A browser on this machine
comes back to a port of 127.0.0.1; with --device the browser may be anywhere. The tokens are
kept in a file that you alone can read. Commands without --token-file use them, and get new
ones, until controlplane logout or the end of the sign-in at the issuer. Where that end comes
with the ID token, because the issuer gives no refresh token, --offline asks it for one.`,
		Example: `  controlplane login --server https://control.example.com
  controlplane login --server https://control.example.com --device`,
		Args: program.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx := command.Context()
			sender, err := o.sender(ctx, command.ErrOrStderr())
			if err != nil {
				return err
			}
			session, err := o.signIn(sender, command.ErrOrStderr())
			if err != nil {
				return err
			}
			session.Offline = offline
			entry, err := session.Login(ctx, device)
			if err != nil {
				return err
			}
			c := &client.Client{Server: o.server, HTTP: sender, Token: func() (string, error) { return entry.IDToken, nil }}
			var who me
			if err := c.Do(ctx, http.MethodGet, "me", client.Request{}, &who); err != nil {
				return err
			}
			if err := session.Store.Put(ctx, o.server, entry); err != nil {
				return program.Usagef("--token-cache: %w", err)
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "Signed in to %s as %s, with the role %s, which may change %s.\n",
				o.server, who.Actor, who.Role, who.Scope)
			return err
		},
	}
	o.serverFlags(command)
	command.Flags().BoolVar(&device, "device", false, "sign in with a browser on another device, by a code")
	command.Flags().BoolVar(&offline, "offline", false, "stay signed in after the session at the issuer (scope offline_access)")
	return command
}

func logoutCommand() *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "logout",
		Short: "Forget the sign-in to a control plane",
		Long: `Forget the sign-in to a control plane.

The tokens are removed from the file, and the issuer is asked to revoke the refresh token. If
that fails, the command says so and why, and what is in the file is removed all the same. The
session of the browser at the issuer is not ended.`,
		Args: program.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx := command.Context()
			sender, err := o.sender(ctx, command.ErrOrStderr())
			if err != nil {
				return err
			}
			session, err := o.signIn(sender, nil)
			if err != nil {
				return err
			}
			entry, found, err := session.Store.Delete(ctx, o.server)
			switch {
			case err != nil:
				return program.Usagef("--token-cache: %w", err)
			case !found:
				return fmt.Errorf("there is no sign-in to %s", program.Shown(o.server))
			}
			if err := session.Revoke(ctx, entry); err != nil {
				_, _ = fmt.Fprintf(command.ErrOrStderr(), "The refresh token is not revoked: %v. It is valid until the issuer ends it.\n", err)
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "Signed out of %s.\n", o.server)
			return err
		},
	}
	o.serverFlags(command)
	return command
}

func whoamiCommand() *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "whoami",
		Short: "Show who a control plane takes you for, and what you may do there",
		Args:  program.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return o.ask(command, http.MethodGet, "me", client.Request{})
		},
	}
	o.flags(command, true)
	return command
}
