// Package oidcauth has administrators identified by an issuer of OpenID Connect: it checks ID
// tokens, and runs the authorization code flow of the status page.
//
// An ID token is valid if a key of the issuer has signed it with an asymmetric algorithm, if the
// client is its only audience, and until it expires. What the person may do is not in the token:
// the groups of the token have roles in a file, see [tokens.GroupFile].
//
// The configuration and the keys of the issuer are fetched when they are first needed, and again
// for a key that is not known, one fetch at a time and with pauses: forged tokens with other ids
// of keys cause no more. An issuer that cannot be reached therefore does not stop the program, nor
// the sign-in with tokens of the file. Keys that were fetched are used on while it is away.
package oidcauth
