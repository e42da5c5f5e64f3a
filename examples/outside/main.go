// Command outside is an operator whose objects have something outside of the cluster. Each Site has a
// record in a service of names, with an HTTP API, and a ConfigMap that says where it can be found. The
// record is repaired within five minutes, moves with the Site's host, and goes with the Site. A record
// that was made by others is never touched.
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/seed-9e1ffd66/trueup/reconcile/external"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

const domain = "example.com" // of labels, the finalizer, and marks in records

var version = schema.GroupVersion{Group: domain, Version: "v1"}

// Site has a name in the world.
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Host   string `json:"host,omitempty"` // empty: no record
		Target string `json:"target"`
	} `json:"spec"`
	Status struct {
		ObservedGeneration int64              `json:"observedGeneration,omitempty"`
		Conditions         []metav1.Condition `json:"conditions,omitempty"`
		Outside            []external.Thing   `json:"outside,omitempty"`
	} `json:"status,omitzero"`
}

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "file with the access to the cluster; empty in a pod")
	names := flag.String("names", "http://127.0.0.1:8053", "URL of the service of names")
	cluster := flag.String("cluster", "example", "what tells this cluster from others that use the service")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err == nil {
		z := &zone{url: *names, client: &http.Client{Timeout: 10 * time.Second}}
		o := newOperator(z, *cluster, slog.New(slog.NewTextHandler(os.Stderr, nil)))
		err = run(ctx, o, config)
	}
	stop()
	if err != nil {
		log.Fatalln("outside:", err)
	}
}

func run(ctx context.Context, o *operator.Operator[*Site], config *rest.Config) error {
	return (&operator.Process{
		Config: config, Resource: version.WithResource("sites"), Address: "0", Logger: o.Logger, Work: o.Work,
	}).Start(ctx)
}

func newOperator(z *zone, cluster string, logger *slog.Logger) *operator.Operator[*Site] {
	gate := external.NewGate(4) // of eight workers: a service that hangs leaves the others
	return &operator.Operator[*Site]{
		Name: "site-operator", Domain: domain, Kind: version.WithKind("Site"), Logger: logger, Scheme: scheme.Scheme,
		Owns:       []schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}},
		Conditions: func(site *Site) *[]metav1.Condition { return &site.Status.Conditions },
		Outside: &operator.Outside[*Site]{
			Things: func(site *Site) *[]external.Thing { return &site.Status.Outside },
			Parts: func(site *Site) []*external.Part {
				mark := external.Mark{
					Domain: domain, Cluster: cluster, Namespace: site.Namespace, Name: site.Name, UID: string(site.UID),
				}
				return []*external.Part{{
					Name: "record", Wanted: site.Spec.Host != "", Gate: gate,
					Kinds: []string{"Record"}, Things: []external.Thing{{Kind: "Record", ID: site.Spec.Host}},
					Make:   func(ctx context.Context) error { return z.put(ctx, mark, site.Spec.Host, site.Spec.Target) },
					Delete: func(ctx context.Context, t external.Thing) error { return z.remove(ctx, mark, t.ID) },
				}}
			},
		},
		Children: func(_ context.Context, site *Site) ([]operator.Object, error) {
			data := map[string]string{}
			for _, t := range site.Status.Outside {
				if t.Made && t.ID == site.Spec.Host {
					data["host"] = t.ID // from now on it can be found there
				}
			}
			return operator.Objects(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: site.Name}, Data: data}), nil
		},
	}
}
