package main

import (
	"encoding/json"
	"net/http"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// store serves copies of a Deployment to clients that list and watch, as an API
// server does that does not know streaming lists: whole, or as metadata, in
// protobuf or JSON.
type store struct {
	template *appsv1.Deployment
	n        int
	meta     func(template *metav1.ObjectMeta, i int) (metav1.ObjectMeta, error)
}

func newStore(template *appsv1.Deployment, n int, meta func(*metav1.ObjectMeta, int) (metav1.ObjectMeta, error)) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /apis/apps/v1/deployments", &store{template, n, meta})
	// A deletion is accepted, and nothing more happens.
	mux.HandleFunc("DELETE /apis/apps/v1/namespaces/{namespace}/deployments/{name}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Success"})
	})
	return mux
}

// ServeHTTP implements http.Handler.
func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	switch {
	case query.Get("sendInitialEvents") != "":
		refuse(w)
	case query.Get("watch") != "":
		w.Header().Set("Content-Type", mediaType(r))
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush() // nothing happens ever after
		<-r.Context().Done()
	default:
		s.list(w, r)
	}
}

// refuse makes a client list instead.
func refuse(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnprocessableEntity)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: "sendInitialEvents is forbidden",
	})
}

func mediaType(r *http.Request) string {
	if strings.Contains(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		return runtime.ContentTypeProtobuf
	}
	return runtime.ContentTypeJSON
}

func (s *store) list(w http.ResponseWriter, r *http.Request) {
	var list runtime.Object
	var err error
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		list, err = s.metadata()
	} else {
		list, err = s.whole()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType(r))
	w.Header().Set("Content-Type", mediaType(r))
	_ = info.Serializer.Encode(list, w) // a client that is gone reports it
}

func (s *store) whole() (runtime.Object, error) {
	list := &appsv1.DeploymentList{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DeploymentList"},
		ListMeta: metav1.ListMeta{ResourceVersion: "1000000"}, Items: make([]appsv1.Deployment, s.n),
	}
	for i := range list.Items {
		live, err := s.meta(&s.template.ObjectMeta, i)
		if err != nil {
			return nil, err
		}
		list.Items[i] = *s.template
		list.Items[i].ObjectMeta = live
	}
	return list, nil
}

func (s *store) metadata() (runtime.Object, error) {
	list := &metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
		ListMeta: metav1.ListMeta{ResourceVersion: "1000000"}, Items: make([]metav1.PartialObjectMetadata, s.n),
	}
	for i := range list.Items {
		live, err := s.meta(&s.template.ObjectMeta, i)
		if err != nil {
			return nil, err
		}
		list.Items[i] = metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
			ObjectMeta: live,
		}
	}
	return list, nil
}
