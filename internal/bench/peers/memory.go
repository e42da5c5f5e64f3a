package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/diff"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchobjects"
)

// memory measures what watching an object costs, in a process of its own for
// each way to do it. The objects are copies of one that the real server has
// answered, and are served by this program: creating so many would take too long.
func (b *bench) memory(ctx context.Context) error {
	if b.watched == 0 {
		return nil
	}
	template, err := b.template(ctx)
	if err != nil {
		return err
	}
	return serve(ctx, newStore(template, b.watched, watchedMeta), func(address string) error {
		for _, way := range []string{"trueup", "informer", "stripped_informer", "metadata_informer", "stripped_metadata_informer"} {
			if err := b.held(ctx, way, address); err != nil {
				return fmt.Errorf("%s: %w", way, err)
			}
		}
		return nil
	})
}

// serve calls f with the address of a server that runs meanwhile.
func serve(ctx context.Context, handler http.Handler, f func(address string) error) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	defer func() {
		_ = server.Close() // its clients have ended
		<-ended
	}()
	return f(listener.Addr().String())
}

// template returns a Deployment as the real server keeps it for us.
func (b *bench) template(ctx context.Context) (*appsv1.Deployment, error) {
	if err := b.others.Namespace(ctx, "memory"); err != nil {
		return nil, err
	}
	t, err := startTrueup(ctx, b.side("trueup"), nil)
	if err != nil {
		return nil, err
	}
	defer t.stop()
	object := watchedObject(0)
	object.SetNamespace("memory")
	set, err := apply.NewSet(owner(), []*unstructured.Unstructured{object}, apply.SetOptions{})
	if err != nil {
		return nil, err
	}
	if _, err := t.Apply(ctx, set); err != nil {
		return nil, err
	}
	deployments := benchobjects.Resources()[object.GroupVersionKind()]
	live, err := b.others.Client.Resource(deployments).Namespace("memory").Get(ctx, object.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var typed appsv1.Deployment
	return &typed, runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, &typed)
}

// watchedObject is what is desired of the one with the number.
func watchedObject(i int) *unstructured.Unstructured {
	object := benchobjects.Mix{Namespace: "ns-" + strconv.Itoa(i%100), Count: 1}.Objects()[0]
	name := fmt.Sprintf("plain-%06d", i)
	object.SetName(name)
	labels := object.GetLabels()
	labels["app"] = name
	object.SetLabels(labels)
	return object
}

// watchedMeta is the metadata of the same as the server keeps it once we have
// applied it.
func watchedMeta(template *metav1.ObjectMeta, i int) (metav1.ObjectMeta, error) {
	object := watchedObject(i)
	live := *template.DeepCopy()
	live.Name, live.Namespace = object.GetName(), object.GetNamespace()
	live.UID = types.UID(fmt.Sprintf("%08d-0000-4000-8000-%012d", i, i))
	live.ResourceVersion = strconv.Itoa(1000 + i)
	live.Labels["app"] = object.GetName()
	labels := object.GetLabels()
	labels[contenderLabel] = owner().Labels[contenderLabel]
	object.SetLabels(labels)
	hash, err := diff.Hash(object.Object)
	live.Annotations[owner().Domain+"/desired-hash"] = hash.String()
	return live, err
}
