package signin_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/remote/signin"
)

func TestASignInIsKeptForItsServer(t *testing.T) {
	t.Parallel()
	store := signin.Store{Path: filepath.Join(t.TempDir(), "new", "sign-ins.json")}
	_, found, err := store.Get("https://a.example.com")
	require.NoError(t, err)
	require.False(t, found)
	entry := signin.Entry{Issuer: "https://login.example.com", ClientID: "trueup", IDToken: "a", ExpiresAt: time.Unix(1_900_000_000, 0).UTC()}
	require.NoError(t, store.Put(t.Context(), "https://a.example.com/", entry))
	require.NoError(t, store.Put(t.Context(), "https://b.example.com:8443", signin.Entry{IDToken: "b"}))
	got, found, err := store.Get("HTTPS://A.example.com")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, entry, got)
	for path, mode := range map[string]os.FileMode{
		store.Path: 0o600, store.Path + ".lock": 0o600, filepath.Dir(store.Path): os.ModeDir | 0o700,
	} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode(), path)
	}
	_, found, err = store.Delete(t.Context(), "https://a.example.com")
	require.NoError(t, err)
	require.True(t, found)
	_, found, err = store.Get("https://a.example.com")
	require.NoError(t, err)
	require.False(t, found)
	_, found, err = store.Get("https://b.example.com:8443")
	require.NoError(t, err)
	require.True(t, found)
	left, err := os.ReadDir(filepath.Dir(store.Path))
	require.NoError(t, err)
	require.Len(t, left, 2, "no file is left beside it")
}

func TestAFileThatOthersMayUseIsRefused(t *testing.T) {
	t.Parallel()
	store := signin.Store{Path: filepath.Join(t.TempDir(), "sign-ins.json")}
	const server = "https://a.example.com"
	require.NoError(t, store.Put(t.Context(), server, signin.Entry{IDToken: "secret"}))
	for _, mode := range []os.FileMode{0o644, 0o640, 0o620, 0o604} {
		require.NoError(t, os.Chmod(store.Path, mode))
		want := fmt.Sprintf("%s has the mode %04o, must have 0600, as it has tokens that others must not use: run chmod 600 '%s'",
			store.Path, mode, store.Path)
		_, found, err := store.Get(server)
		require.EqualError(t, err, want)
		require.False(t, found)
		require.EqualError(t, store.Put(t.Context(), server, signin.Entry{}), want)
		_, _, err = store.Delete(t.Context(), server)
		require.EqualError(t, err, want)
	}
	require.NoError(t, os.Chmod(store.Path, 0o400))
	entry, found, err := store.Get(server)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, "secret", entry.IDToken)
}

func TestAFolderThatCannotBeWrittenIsAnError(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	store := signin.Store{Path: filepath.Join(file, "sign-ins.json")}
	require.ErrorContains(t, store.Put(t.Context(), "https://a.example.com", signin.Entry{}), "not a directory")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := (&signin.Client{Server: "http://127.0.0.1:1", Store: store, HTTP: http.DefaultClient}).Token(ctx)
	require.Error(t, err)
}
