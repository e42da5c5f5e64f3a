package view //nolint:testpackage // plays a server that begins to serve a kind

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientmetadata "k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// changing is a server that serves widgets once the test sets serves, behind a caching mapper.
type changing struct {
	meta.RESTMapper

	mu                    sync.Mutex
	serves, fails, mapped bool
	resets, asked         int
}

// now looks at the server, or changes it.
func (c *changing) now(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
}

func (c *changing) Reset() { c.now(func() { c.resets, c.mapped = c.resets+1, c.serves }) }

func (c *changing) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mapped {
		return nil, &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: versions}
	}
	version := schema.GroupVersion{Group: kind.Group, Version: "v1"}
	return &meta.RESTMapping{
		Resource: version.WithResource("widgets"), GroupVersionKind: version.WithKind(kind.Kind), Scope: meta.RESTScopeNamespace,
	}, nil
}

func (c *changing) ServerGroups() (*metav1.APIGroupList, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	switch {
	case c.fails:
		return nil, errors.New("the server is away")
	case !c.serves:
		return &metav1.APIGroupList{}, nil
	}
	version := metav1.GroupVersionForDiscovery{GroupVersion: "acme/v1", Version: "v1"}
	return &metav1.APIGroupList{Groups: []metav1.APIGroup{{Name: "acme", Versions: []metav1.GroupVersionForDiscovery{version}}}}, nil
}

func (c *changing) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	return &metav1.APIResourceList{GroupVersion: "acme/v1", APIResources: []metav1.APIResource{{Name: "widgets", Kind: "Widget"}}}, nil
}

// TestAKindIsSeenSoonAfterItIsServed, also by the definition of another. While it is not served,
// discovery is asked, and the mapper does not read all that the server serves.
func TestAKindIsSeenSoonAfterItIsServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, err := clientmetadata.NewForConfigAndClient(
			&rest.Config{Host: "http://server", QPS: -1}, &http.Client{Transport: &lateServer{lists: 1}})
		require.NoError(t, err)
		server := &changing{}
		k := New(schema.GroupKind{Group: "acme", Kind: "Widget"}, me, Hooks{})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.Watch(ctx, Source{Client: client, Mapper: server, Discovery: server})
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, Unserved, k.Known().State)
		server.now(func() {
			require.LessOrEqual(t, server.resets, 2)
			require.InDelta(t, 720, server.asked, 60, "every five seconds")
			server.serves = true
		})
		time.Sleep(7 * time.Second)
		synctest.Wait()
		require.Equal(t, Known{State: Served}, k.Known())
		server.now(func() { require.LessOrEqual(t, server.resets, 3) })
		stop()
		<-done
	})
}

// TestAKindIsInDoubtWhileDiscoveryFails: also if it was not served before.
func TestAKindIsInDoubtWhileDiscoveryFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &changing{}
		k := New(schema.GroupKind{Group: "acme", Kind: "Widget"}, me, Hooks{})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.Watch(ctx, Source{Mapper: server, Discovery: server})
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.NoError(t, k.Known().Doubt())
		server.now(func() { server.fails = true })
		time.Sleep(7 * time.Second)
		synctest.Wait()
		require.ErrorContains(t, k.Known().Doubt(), "the server is away")
		server.now(func() { server.fails = false })
		time.Sleep(40 * time.Second)
		synctest.Wait()
		require.NoError(t, k.Known().Doubt(), "its absence is proven again")
		stop()
		<-done
	})
}

// TestANudgeBeginsTheDelaysAnew: discovery may follow the definition that was seen.
func TestANudgeBeginsTheDelaysAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, err := clientmetadata.NewForConfigAndClient(
			&rest.Config{Host: "http://server", QPS: -1}, &http.Client{Transport: &lateServer{lists: 1}})
		require.NoError(t, err)
		server := &changing{}
		k := New(schema.GroupKind{Group: "acme", Kind: "Widget"}, me, Hooks{})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.Watch(ctx, Source{Client: client, Mapper: server, Discovery: server})
		}()
		for range 5 {
			time.Sleep(time.Minute)
			k.Nudge()
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, Unserved, k.Known().State)
		server.now(func() { server.serves = true })
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, Served, k.Known().State)
		stop()
		<-done
	})
}
