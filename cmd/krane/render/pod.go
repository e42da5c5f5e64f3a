package render

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/specs"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"
)

// podSecurity is the loosest level of the cell.
func (c Cell) podSecurity() isolation.Level { return cmp.Or(c.PodSecurity, isolation.Restricted) }

// pod returns the spec of a pod with one container, with all that every pod has.
func (c Cell) pod(selector, container object, level isolation.Level) object {
	if confined := level.Container(); confined != nil {
		container["securityContext"] = confined
	}
	spec := object{
		"automountServiceAccountToken": false,
		"enableServiceLinks":           false,
		"securityContext":              level.Pod(),
		"nodeSelector":                 object{nodeClass: untrusted},
		"tolerations":                  []any{object{"key": nodeClass, "operator": "Equal", "value": untrusted, "effect": "NoSchedule"}},
		"topologySpreadConstraints": []any{
			spread("kubernetes.io/hostname", selector), spread("topology.kubernetes.io/zone", selector),
		},
		"containers": []any{container},
	}
	if c.RuntimeClass != "" {
		spec["runtimeClassName"] = c.RuntimeClass
	}
	if c.Registry != (Registry{}) {
		spec["imagePullSecrets"] = []any{object{"name": pullSecretName}}
	}
	return spec
}

func spread(topology string, selector object) object {
	return object{
		"maxSkew": int64(1), "topologyKey": topology, "whenUnsatisfiable": "ScheduleAnyway",
		"labelSelector": object{"matchLabels": selector},
	}
}

// environment returns the variables that are not empty, and, blanked, the variables
// with which the kubelet names the API server to every container. Variables that
// are stated like this take precedence over envFrom.
func environment(variables [][2]string) []any {
	var env []any
	for _, v := range variables {
		if v[1] != "" {
			env = append(env, object{"name": v[0], "value": escape(v[1])})
		}
	}
	for _, name := range []string{
		"KUBERNETES_PORT", "KUBERNETES_PORT_443_TCP", "KUBERNETES_PORT_443_TCP_ADDR", "KUBERNETES_PORT_443_TCP_PORT",
		"KUBERNETES_PORT_443_TCP_PROTO", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBERNETES_SERVICE_PORT_HTTPS",
	} {
		env = append(env, object{"name": name}) // the server drops an empty value
	}
	return env
}

// escape keeps the kubelet from expanding references to other variables, as it
// does in values and in the commands of probes.
func escape(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// resources limits a container, and requests half of that, rounded up.
func resources(millicores, mebi int64) object {
	return object{
		"limits":   quantities(millicores, mebi, rootStorageMiB),
		"requests": quantities(half(millicores), half(mebi), half(rootStorageMiB)),
	}
}

func quantities(millicores, mebi, rootMebi int64) object {
	return object{
		"cpu": strconv.FormatInt(millicores, 10) + "m", "memory": mebibytes(mebi), "ephemeral-storage": mebibytes(rootMebi),
	}
}

func half(n int64) int64 { return (n + 1) / 2 }

func mebibytes(n int64) string { return strconv.FormatInt(n, 10) + "Mi" }

// postScript asks with what the image has, curl or wget. Its arguments are the
// URL and the seconds it may take, which the shell does not parse.
const postScript = `if command -v curl >/dev/null 2>&1; then exec curl -gfsS -o /dev/null -m "$2" -X POST "$1"; fi
exec wget -q -O /dev/null -T "$2" --post-data= "$1"`

// probe is the one probe of a container.
func probe(check *specs.Healthcheck, port int32) object {
	p := object{
		"periodSeconds": int64(check.IntervalSeconds), "timeoutSeconds": int64(check.TimeoutSeconds),
		"failureThreshold": int64(check.FailureThreshold), "initialDelaySeconds": int64(check.InitialDelaySeconds),
	}
	if check.Method == http.MethodGet {
		p["httpGet"] = object{"path": check.Path, "port": int64(port)}
		return p
	}
	url := "http://127.0.0.1:" + strconv.Itoa(int(port)) + escape(check.Path)
	p["exec"] = object{"command": []any{"/bin/sh", "-c", postScript, "probe", url, strconv.Itoa(int(check.TimeoutSeconds))}}
	return p
}

const signalKill = "SIGKILL"

// stopSignal returns the name by which kill sends the signal of a deployment before
// Kubernetes sends SIGTERM, if that is another.
// SIGKILL cannot be sent: the kernel protects the first process of a container
// from its own. There a grace of one second comes closest.
func stopSignal(name string) (kill string) {
	switch name {
	case "SIGINT":
		return "INT"
	case "SIGQUIT":
		return "QUIT"
	}
	return ""
}

// stopScript sends the signal and then waits, so that the SIGTERM comes only when
// the grace is used up.
const stopScript = `kill -s "$1" 1 && while kill -0 1 2>/dev/null; do sleep 1; done`
