package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchobjects"
)

// sending is a way to create an object.
type sending struct {
	name, method, contentType, accept, query string
	encode                                   func(*unstructured.Unstructured) ([]byte, error)
}

// sendings returns the ways in which the contenders create an object. Server-side apply, answered with
// metadata, is sent with a line break after each brace, as trueup does, and without. A create, which
// CreateOrUpdate begins with, is sent as protobuf, as a typed client does, and as JSON.
func sendings() []sending {
	const (
		protobuf = "application/vnd.kubernetes.protobuf"
		metadata = protobuf + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
		either   = protobuf + ",application/json"
		applied  = "application/apply-patch+yaml"
		forced   = "&force=true&fieldValidation=Ignore"
	)
	compact := func(o *unstructured.Unstructured) ([]byte, error) { return o.MarshalJSON() }
	return []sending{
		{"apply", http.MethodPatch, applied, metadata, forced, func(o *unstructured.Unstructured) ([]byte, error) {
			data, err := o.MarshalJSON()
			var lines bytes.Buffer
			err = errors.Join(err, json.Indent(&lines, data, "", ""))
			return lines.Bytes(), err
		}},
		{"apply_in_one_line", http.MethodPatch, applied, metadata, forced, compact},
		{"create", http.MethodPost, protobuf, either, "", protobufOf},
		{"create_as_json", http.MethodPost, "application/json", either, "", compact},
	}
}

// protobufOf encodes an object as a client with types does: a custom kind as JSON.
func protobufOf(o *unstructured.Unstructured) ([]byte, error) {
	kind := o.GroupVersionKind()
	typed, err := scheme.Scheme.New(kind)
	if runtime.IsNotRegisteredError(err) {
		return o.MarshalJSON()
	}
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, typed); err != nil {
		return nil, err
	}
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	return runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, kind.GroupVersion()), typed)
}

// requests measures what the server pays for one creation in each way: the processor time of
// kube-apiserver and etcd, and what the former allocates. The ways take turns; nothing watches.
func (b *bench) requests(ctx context.Context) error {
	const namespace, each, rounds = "requests", 500, 12
	if err := b.others.Namespace(ctx, namespace); err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(b.cluster.Config)
	if err != nil {
		return err
	}
	took, allocated, all := map[string][]float64{}, map[string][]float64{}, sendings()
	for round := range rounds + 1 { // the first one warms the server, and does not count
		for turn := range all {
			way := all[(round+turn)%len(all)]
			objects := benchobjects.Mix{Namespace: namespace, Count: each}.Objects()
			for _, o := range objects {
				o.SetName(fmt.Sprintf("%s-%s-%d", o.GetName(), strings.ReplaceAll(way.name, "_", "-"), round))
			}
			begin, unknown := b.allocated(ctx)
			before, err := benchfigures.ProcessorTime(os.Getpid())
			if err = errors.Join(unknown, err); err != nil {
				return err
			}
			err = benchobjects.Each(each, 8, func(i int) error { return way.send(ctx, client, b.cluster.Config.Host, objects[i]) })
			if err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
			after, err := benchfigures.ProcessorTime(os.Getpid())
			end, unknown := b.allocated(ctx)
			if err = errors.Join(unknown, err); err != nil {
				return err
			}
			if used := after.Since(before); round > 0 {
				took[way.name] = append(took[way.name], 1000*(used["kube-apiserver"]+used["etcd"])/each)
				allocated[way.name] = append(allocated[way.name], (end-begin)/1024/each)
			}
		}
	}
	for _, way := range all {
		b.book.Add("server.processor_ms_to_"+way.name, benchfigures.Percentile(took[way.name], 0.5), "ms")
		b.book.Add("server.allocated_kib_to_"+way.name, benchfigures.Percentile(allocated[way.name], 0.5), "KiB")
	}
	for _, way := range all[1:] {
		b.book.Add("server.apply_takes_of_"+way.name, benchfigures.Percentile(benchfigures.Ratios(took["apply"], took[way.name]), 0.5), "x")
	}
	return nil
}

// allocated returns how many bytes kube-apiserver has allocated since its start.
func (b *bench) allocated(ctx context.Context) (float64, error) {
	metrics, err := b.cluster.Kubectl(ctx, "get", "--raw", "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(metrics) {
		if value, ok := strings.CutPrefix(line, "go_memstats_alloc_bytes_total "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, errors.New("kube-apiserver has no metric go_memstats_alloc_bytes_total")
}

// send creates one object.
func (s sending) send(ctx context.Context, client *http.Client, host string, o *unstructured.Unstructured) error {
	resource := benchobjects.Resources()[o.GroupVersionKind()]
	url := host + "/apis/" + resource.Group
	if resource.Group == "" {
		url = host + "/api"
	}
	url += "/" + resource.Version + "/namespaces/" + o.GetNamespace() + "/" + resource.Resource
	if s.method == http.MethodPatch {
		url += "/" + o.GetName()
	}
	body, err := s.encode(o)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, s.method, url+"?fieldManager=bench"+s.query, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", s.contentType)
	if body[0] == '{' && s.method == http.MethodPost {
		request.Header.Set("Content-Type", "application/json")
	}
	request.Header.Set("Accept", s.accept)
	if resource.Group == "bench.example.com" { // a custom kind has no protobuf
		request.Header.Set("Accept", strings.ReplaceAll(s.accept, "vnd.kubernetes.protobuf", "json"))
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusCreated {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return errors.Join(err, answer.Body.Close())
}
