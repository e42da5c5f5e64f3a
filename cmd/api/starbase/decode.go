package starbase

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxBody is the size in bytes above which [Decode] refuses a body: 16 MiB.
const MaxBody = 16 << 20

// Decode reads one desired state for the cluster and refuses it as a whole
// unless it is certain to be what the server meant to send. It reads r to the
// end. Every refusal is a [*RefusedError]; the state is then nil.
//
// Refused are, in this order: a body that cannot be read to its end, that is
// larger than [MaxBody], that is not exactly one JSON object, that has another
// schema, that is for another cluster, that lacks what makes it complete, and
// one that disagrees with its own counts or digest.
//
// Entries are not validated, only decoded: one member of the wrong JSON type
// makes the body unreadable, a value out of range does not. Ports and
// egress rules without a protocol are returned as TCP.
func Decode(r io.Reader, clusterID string) (*DesiredState, error) {
	body, err := io.ReadAll(io.LimitReader(r, MaxBody+1))
	if err != nil {
		return nil, refuse(ReasonRead, fmt.Errorf("after %d bytes: %w", len(body), err))
	}
	if len(body) > MaxBody {
		return nil, refuse(ReasonTooLarge, fmt.Errorf("more than %d bytes", MaxBody))
	}
	members, err := parseObject(body)
	if err != nil {
		return nil, refuse(ReasonParse, fmt.Errorf("%d bytes: %w", len(body), err))
	}
	state, err := decodeMembers(body)
	if err != nil {
		return nil, refuse(ReasonParse, err)
	}
	_, extended := members["schema"]
	if extended && state.Schema != Schema {
		return nil, refuse(ReasonSchema, fmt.Errorf("schema is %v, this program reads %d", members["schema"], Schema))
	}
	if (extended || state.ClusterID != "") && state.ClusterID != clusterID {
		return nil, refuse(ReasonClusterID, fmt.Errorf("the body is for cluster %q, this is cluster %q", state.ClusterID, clusterID))
	}
	if err := state.checkComplete(extended); err != nil {
		return nil, refuse(ReasonIncomplete, err)
	}
	if extended {
		if err := state.checkContent(members); err != nil {
			return nil, err
		}
	}
	for i := range state.Projects {
		state.Projects[i].SetDefaults()
	}
	for i := range state.Services {
		state.Services[i].SetDefaults()
	}
	return state, nil
}

// decodeMembers decodes the members by their exact names; encoding/json alone
// would also take "Services" for "services".
func decodeMembers(body []byte) (*DesiredState, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil {
		return nil, err
	}
	var state DesiredState
	for _, member := range []struct {
		name   string
		target any
	}{
		{"version", &state.Version},
		{"schema", &state.Schema},
		{"cluster_id", &state.ClusterID},
		{"epoch", &state.Epoch},
		{"generation", &state.Generation},
		{"complete", &state.Complete},
		{"counts", &state.Counts},
		{"digest", &state.Digest},
		{"approved_deletions", &state.ApprovedDeletions},
		{"cluster_config", &state.ClusterConfig},
		{"projects", &state.Projects},
		{"services", &state.Services},
		{"var_groups", &state.VarGroups},
	} {
		text, present := raw[member.name]
		if !present {
			continue
		}
		if err := json.Unmarshal(text, member.target); err != nil {
			return nil, fmt.Errorf("%s: %w", member.name, err)
		}
	}
	return &state, nil
}

func (d *DesiredState) checkComplete(extended bool) error {
	switch {
	case d.Version == "":
		return errors.New("version is missing")
	case d.Services == nil:
		return errors.New("services is missing")
	case !extended:
		return nil
	case !d.Complete:
		return errors.New("complete is not true")
	case d.Epoch == "":
		return errors.New("epoch is missing")
	case d.Generation < 1:
		return fmt.Errorf("generation is %d, must be 1 or more", d.Generation)
	}
	return nil
}

func (d *DesiredState) checkContent(members map[string]any) error {
	if members["counts"] == nil {
		return refuse(ReasonCounts, errors.New("counts is missing"))
	}
	if counted := d.counts(); counted != d.Counts {
		return refuse(ReasonCounts, fmt.Errorf("counts says %+v, the body has %+v", d.Counts, counted))
	}
	digest, err := digestOf(members)
	if err != nil {
		return refuse(ReasonDigest, err)
	}
	if digest != d.Digest {
		return refuse(ReasonDigest, fmt.Errorf("digest says %q, the body has %q", d.Digest, digest))
	}
	return nil
}
