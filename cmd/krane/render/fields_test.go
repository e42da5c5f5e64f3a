package render_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
)

// ignored are the fields of what a stream or a point query delivers that are not
// rendered, with the reason.
var ignored = map[string]string{
	"DeploymentState.version":           "the stream's: it orders what is rendered",
	"DeploymentState.delete":            "names what is deleted; nothing is rendered",
	"DeploymentState.synced":            "the stream's: the end of the list",
	"DeploymentState.bookmark":          "the stream's: the cursor",
	"SentinelState.version":             "as above",
	"SentinelState.delete":              "as above",
	"SentinelState.synced":              "as above",
	"SentinelState.bookmark":            "as above",
	"CiliumNetworkPolicyState.version":  "as above",
	"CiliumNetworkPolicyState.delete":   "as above",
	"CiliumNetworkPolicyState.synced":   "as above",
	"CiliumNetworkPolicyState.bookmark": "as above",
}

// others are other valid values where text of one more character is none.
// Those marked here as refused show in an error instead of in objects.
var others = map[string]struct {
	value   any
	refused string
}{
	"ApplyDeployment.shutdown_signal": {value: "SIGQUIT"},
	"ApplyDeployment.pod_security":    {value: "baseline"},
	"ApplyDeployment.healthcheck":     {value: []byte(`{"path":"/other"}`)},
	"ApplyDeployment.region":          {value: "us", refused: "region is"},
	// Rendered with the decrypted variables, which must be present if this is.
	"ApplyDeployment.encrypted_environment_variables": {value: []byte(nil)},
	"ApplyCiliumNetworkPolicy.policy": {
		value: []byte(`{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","specs":[]}`),
	},
	// The policy states the same, and must.
	"ApplyCiliumNetworkPolicy.k8s_namespace": {value: "other", refused: "policy.metadata.namespace is"},
	"ApplyCiliumNetworkPolicy.k8s_name":      {value: "other", refused: "policy.metadata.name is"},
}

// renderState renders what a message asks for, without variables when there is
// something to decrypt: then the error shows that it was looked at.
func renderState(message proto.Message) ([]*unstructured.Unstructured, error) {
	switch m := message.(type) {
	case *ctrlv1.DeploymentState:
		if len(m.GetApply().GetEncryptedEnvironmentVariables()) == 0 {
			return cell.Deployment(m.GetApply(), nil, uid)
		}
		return cell.Deployment(m.GetApply(), variables, uid)
	case *ctrlv1.SentinelState:
		return cell.Sentinel(m.GetApply(), uid)
	case *ctrlv1.CiliumNetworkPolicyState:
		return cell.Policy(m.GetApply())
	default:
		return nil, nil
	}
}

// TestEveryFieldOnTheWireIsRenderedOrIgnoredForAReason changes each field of the
// messages, one at a time, and looks for a difference.
func TestEveryFieldOnTheWireIsRenderedOrIgnoredForAReason(t *testing.T) {
	t.Parallel()
	unused := map[string]bool{}
	for name := range ignored {
		unused[name] = true
	}
	fields := 0
	for _, full := range []proto.Message{
		&ctrlv1.DeploymentState{State: &ctrlv1.DeploymentState_Apply{Apply: fullDeployment()}},
		&ctrlv1.SentinelState{State: &ctrlv1.SentinelState_Apply{Apply: sentinel()}},
		&ctrlv1.CiliumNetworkPolicyState{State: &ctrlv1.CiliumNetworkPolicyState_Apply{Apply: policy()}},
	} {
		objects, err := renderState(full)
		require.NoError(t, err)
		before := text(t, objects)
		var walk func(path []protoreflect.FieldDescriptor, message protoreflect.MessageDescriptor)
		walk = func(path []protoreflect.FieldDescriptor, message protoreflect.MessageDescriptor) {
			for i := range message.Fields().Len() {
				field := message.Fields().Get(i)
				name := strings.TrimPrefix(string(field.FullName()), "ctrl.v1.")
				if ignored[name] != "" {
					delete(unused, name)
					continue
				}
				at := append(append([]protoreflect.FieldDescriptor(nil), path...), field)
				if field.Message() != nil {
					walk(at, field.Message())
					if !strings.HasSuffix(name, "State.apply") {
						absent(t, full, at, before)
					}
					continue
				}
				fields++
				changed := proto.Clone(full)
				set(changed.ProtoReflect(), at, name)
				objects, err := renderState(changed)
				if refused := others[name].refused; refused != "" {
					require.ErrorContains(t, err, refused, name)
					continue
				}
				require.NoError(t, err, name)
				require.NotEqual(t, before, text(t, objects), "%s changes nothing: render it, or say in ignored why not", name)
			}
		}
		walk(nil, full.ProtoReflect().Descriptor())
	}
	require.Empty(t, unused, "ignored names a field that does not exist")
	require.Equal(t, 23+4+1+11+4, fields, "fields of the contract")
}

// absent leaves a whole message out.
func absent(t *testing.T, full proto.Message, path []protoreflect.FieldDescriptor, before string) {
	t.Helper()
	changed := proto.Clone(full)
	parent(changed.ProtoReflect(), path).Clear(path[len(path)-1])
	objects, err := renderState(changed)
	require.NoError(t, err)
	require.NotEqual(t, before, text(t, objects), path[len(path)-1].FullName())
}

func parent(m protoreflect.Message, path []protoreflect.FieldDescriptor) protoreflect.Message {
	for _, field := range path[:len(path)-1] {
		m = m.Mutable(field).Message()
	}
	return m
}

// set gives the field at the path another value.
func set(m protoreflect.Message, path []protoreflect.FieldDescriptor, name string) {
	m, field := parent(m, path), path[len(path)-1]
	if other, ok := others[name]; ok {
		m.Set(field, protoreflect.ValueOf(other.value))
		return
	}
	if field.IsList() {
		m.Mutable(field).List().Append(protoreflect.ValueOfString("more"))
		return
	}
	switch v := m.Get(field).Interface().(type) {
	case string:
		m.Set(field, protoreflect.ValueOfString(v+"x"))
	case int32:
		m.Set(field, protoreflect.ValueOfInt32(v+1))
	case int64:
		m.Set(field, protoreflect.ValueOfInt64(v+2)) // half of it, rounded, differs too
	case uint32:
		m.Set(field, protoreflect.ValueOfUint32(v+1))
	}
}
