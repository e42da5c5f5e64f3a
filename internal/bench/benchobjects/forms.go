package benchobjects

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

const widgets = "bench.example.com"

type object = map[string]any

// Definition returns the CustomResourceDefinition of the custom kind of a mix.
func Definition() *unstructured.Unstructured {
	text := object{"type": "string"}
	return &unstructured.Unstructured{Object: object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": object{"name": "widgets." + widgets},
		"spec": object{
			"group": widgets, "scope": "Namespaced",
			"names": object{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []any{object{
				"name": "v1", "served": true, "storage": true,
				"schema": object{"openAPIV3Schema": object{"type": "object", "properties": object{"spec": object{
					"type": "object",
					"properties": object{
						"size":   object{"type": "integer", "minimum": int64(1)},
						"colour": object{"type": "string", "default": "blue"},
						"memory": object{
							"x-kubernetes-int-or-string": true,
							"anyOf":                      []any{object{"type": "integer"}, text},
						},
						"parts": object{
							"type":                       "array",
							"x-kubernetes-list-type":     "map",
							"x-kubernetes-list-map-keys": []any{"name"},
							"items": object{
								"type":       "object",
								"required":   []any{"name"},
								"properties": object{"name": text, "weight": object{"type": "integer"}},
							},
						},
					},
				}}}},
			}},
		},
	}}
}

func config(Mix) object {
	return object{"data": object{
		"level": "info", "listen": ":8080",
		"app.conf": "[server]\nthreads = 4\ntimeout = 30s\n\n[store]\npath = /var/lib/app\n",
	}}
}

func login(Mix) object {
	return object{"type": "Opaque", "stringData": object{"user": "app", "password": "made-up-for-a-benchmark"}}
}

func dns(Mix) object {
	return object{"spec": object{
		"selector": object{"app": "dns"}, "sessionAffinity": "None",
		"ports": []any{
			object{"name": "dns-tcp", "port": int64(53)},
			object{"name": "dns-udp", "port": int64(53), "protocol": "UDP"},
		},
	}}
}

func widget(m Mix) object {
	return object{"spec": object{
		"size": int64(3), "memory": m.quantity("1024Mi", "1Gi"),
		"parts": []any{object{"name": "a", "weight": int64(1)}, object{"name": "b"}},
	}}
}

// plain states much, and quantities as the server writes them.
func plain(Mix) object {
	c := container(object{"requests": object{"cpu": "100m", "memory": "1Gi"}, "limits": object{"cpu": "1", "memory": "1Gi"}})
	c["imagePullPolicy"] = "IfNotPresent"
	c["ports"] = []any{object{"name": "http", "containerPort": int64(8080), "protocol": "TCP"}}
	c["readinessProbe"] = object{
		"httpGet":        object{"path": "/readyz", "port": "http", "scheme": "HTTP"},
		"timeoutSeconds": int64(1), "periodSeconds": int64(10), "successThreshold": int64(1), "failureThreshold": int64(3),
	}
	return deployment(c, object{"replicas": int64(2), "minReadySeconds": int64(5)})
}

// sparse leaves out all that may be left out.
func sparse(Mix) object {
	return deployment(object{"name": "main", "image": "example.com/app:1"}, object{"replicas": int64(2), "minReadySeconds": int64(5)})
}

// odd has quantities that the server writes otherwise.
func odd(m Mix) object {
	return deployment(container(object{
		"requests": object{"cpu": m.quantity("0.1", "100m"), "memory": m.quantity("1024Mi", "1Gi")},
		"limits":   object{"cpu": m.quantity("1000m", "1"), "memory": m.quantity("1073741824", "1Gi")},
	}), object{"replicas": int64(2), "minReadySeconds": int64(5)})
}

// scaled leaves the replicas to an autoscaler.
func scaled(m Mix) object {
	return deployment(container(object{"requests": object{"cpu": m.quantity("0.5", "500m")}}), object{"minReadySeconds": int64(5)})
}

func store(m Mix) object {
	s := deployment(container(object{"requests": object{"cpu": m.quantity("0.2", "200m")}}), object{
		"replicas": int64(3), "serviceName": "store", "minReadySeconds": int64(5),
		"volumeClaimTemplates": []any{object{
			"metadata": object{"name": "data"},
			"spec": object{
				"accessModes": []any{"ReadWriteOnce"},
				"resources":   object{"requests": object{"storage": m.quantity("1024Mi", "1Gi")}},
			},
		}},
	})
	return s
}

func (m Mix) quantity(written, canonical string) string {
	if m.Canonical {
		return canonical
	}
	return written
}

func container(resources object) object {
	return object{
		"name": "main", "image": "example.com/app:1", "resources": resources,
		"args": []any{"--listen=:8080", "--verbose"},
		"env": []any{
			object{"name": "LEVEL", "value": "info"},
			object{"name": "NODE", "valueFrom": object{"fieldRef": object{"fieldPath": "spec.nodeName"}}},
		},
		"ports": []any{object{"containerPort": int64(8080)}},
	}
}

func deployment(container, spec object) object {
	spec["selector"] = object{"matchLabels": object{"run": "bench"}}
	spec["template"] = object{
		"metadata": object{"labels": object{"run": "bench"}},
		"spec":     object{"containers": []any{container}},
	}
	return object{"spec": spec}
}
