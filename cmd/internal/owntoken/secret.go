package owntoken

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// unread logs why the Secret was not read, unless it did so just before. The lock is held.
func (s *Source) unread(ctx context.Context, err error) {
	if s.said != err.Error() {
		s.config.Logger.WarnContext(ctx, "renewed token not read", slog.String("secret", s.config.Secret.String()), slog.Any("error", err))
	}
	s.said = err.Error()
}

// load reads the Secret. The lock is held.
func (s *Source) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	secret, err := s.secrets.Get(ctx, s.config.Secret.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		// The own token that this process knows may be the only valid one.
		s.loaded = true
		return nil
	}
	if err != nil {
		return err
	}
	own, err := s.read(secret)
	if err != nil {
		return err
	}
	if own != (renewed{}) && own != s.own { // as above
		s.own, s.restUntil, s.kept = own, time.Time{}, time.Now().Add(spread(rest))
	}
	s.loaded = true
	return nil
}

// store writes the Secret, unless another process has written it since. Without replace it writes it
// only if that has no token. It reports whether it has.
func (s *Source) store(ctx context.Context, own renewed, replace bool) (stored bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	data := map[string]any{}
	for key, value := range map[string]string{keyToken: own.token, keyGiven: own.given, keyAgent: s.config.Agent} {
		data[key] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	name := s.config.Secret.Name
	secret, err := s.secrets.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = s.secrets.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
			"metadata": map[string]any{"name": name},
		}}, metav1.CreateOptions{})
		return err == nil, err
	}
	if err != nil {
		return false, err
	}
	if have, err := s.read(secret); err != nil || have != (renewed{}) && !replace {
		return false, err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": secret.GetResourceVersion()}, "data": data,
	})
	if err != nil {
		return false, err
	}
	_, err = s.secrets.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err == nil, err
}

// read returns the token of a Secret, zero if it has none. It is an error if the Secret has another use.
func (s *Source) read(secret *unstructured.Unstructured) (own renewed, err error) {
	var agent string
	data, _, err := unstructured.NestedStringMap(secret.Object, "data")
	if err != nil {
		return own, err
	}
	for key, value := range data {
		decoded, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return renewed{}, fmt.Errorf("data.%s: is not base64", key)
		}
		switch key {
		case keyToken:
			own.token = string(decoded)
		case keyGiven:
			own.given = string(decoded)
		case keyAgent:
			agent = string(decoded)
		default:
			return renewed{}, fmt.Errorf("has the key %q: it is not one where an agent keeps its token", key)
		}
	}
	switch {
	case own == renewed{} && agent == "":
	case own.token == "" || own.given == "" || agent == "":
		return renewed{}, fmt.Errorf("must have %s, %s and %s, or none: it is not one where an agent keeps its token",
			keyToken, keyGiven, keyAgent)
	case agent != s.config.Agent:
		return renewed{}, fmt.Errorf("data.%s: is %q, must be %q: it has the token of another agent", keyAgent, agent, s.config.Agent)
	case !program.IsToken(own.token):
		return renewed{}, fmt.Errorf("data.%s: has spaces or characters outside printable ASCII", keyToken)
	}
	return own, nil
}

func hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
