package controltest

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// WatchDeployments streams deployments.
func (s *Server) WatchDeployments(
	ctx context.Context,
	r *connect.Request[ctrlv1.WatchDeploymentsRequest],
	out *connect.ServerStream[ctrlv1.DeploymentState],
) error {
	return watch(ctx, s, r.Header(), deployments, r.Msg, out)
}

// WatchSentinels streams sentinels.
func (s *Server) WatchSentinels(
	ctx context.Context,
	r *connect.Request[ctrlv1.WatchSentinelsRequest],
	out *connect.ServerStream[ctrlv1.SentinelState],
) error {
	return watch(ctx, s, r.Header(), sentinels, r.Msg, out)
}

// WatchCiliumNetworkPolicies streams policies.
func (s *Server) WatchCiliumNetworkPolicies(
	ctx context.Context,
	r *connect.Request[ctrlv1.WatchCiliumNetworkPoliciesRequest],
	out *connect.ServerStream[ctrlv1.CiliumNetworkPolicyState],
) error {
	return watch(ctx, s, r.Header(), policies, r.Msg, out)
}

// message is a [ctrlv1.Message] that is a pointer to T.
type message[T any] interface {
	*T
	ctrlv1.Message
}

func watch[T any, P message[T]](
	ctx context.Context,
	s *Server,
	header http.Header,
	collection string,
	r request,
	out *connect.ServerStream[T],
) error {
	return s.watch(ctx, header, collection, r, func(i statesync.Item, marker proto.Message) error {
		m := P(new(T))
		if marker == nil {
			marker = order(i)
		}
		ctrlv1.Put(m, marker, i.Version)
		return out.Send(m)
	})
}

// order returns the apply or delete message of an item.
func order(i statesync.Item) ctrlv1.Order {
	if i.Deleted {
		namespace, name := split(i.ID)
		return ctrlv1.NewDelete(i.Collection, namespace, name)
	}
	apply := ctrlv1.NewApply(i.Collection)
	_ = protojson.Unmarshal(i.Value, apply) // Want has made it
	return apply
}

// find looks for the item that is, which is given each apply message of the
// collection. It returns NotFound when there is none.
func (s *Server) find(ctx context.Context, header http.Header, collection string, is func(statesync.Item) bool) error {
	s.mu.Lock()
	s.queries++
	s.mu.Unlock()
	f, err := s.enter(header)
	if err == nil && f.Query != 0 {
		err = connect.NewError(f.Query, errors.New("no answer"))
	}
	if err != nil {
		return err
	}
	page, err := s.Log.Read(ctx, s.region, 0, 1<<20)
	if err != nil {
		return err
	}
	for _, i := range page.Items {
		if i.Collection == collection && !i.Deleted && !f.Hide && !f.NotFound && is(i) {
			return nil
		}
	}
	return connect.NewError(connect.CodeNotFound, errors.New("no such row"))
}

// GetDesiredDeploymentState finds a deployment by its id.
func (s *Server) GetDesiredDeploymentState(
	ctx context.Context,
	r *connect.Request[ctrlv1.GetDesiredDeploymentStateRequest],
) (*connect.Response[ctrlv1.DeploymentState], error) {
	m := &ctrlv1.DeploymentState{}
	err := s.find(ctx, r.Header(), deployments, func(i statesync.Item) bool {
		ctrlv1.Put(m, order(i), i.Version)
		return m.GetApply().GetDeploymentId() == r.Msg.GetDeploymentId()
	})
	s.mu.Lock()
	gone := s.faults.Gone
	s.mu.Unlock()
	if d := m.GetApply(); d != nil && err == nil && gone {
		ctrlv1.Put(m, ctrlv1.NewDelete(deployments, d.GetK8SNamespace(), d.GetK8SName()), m.GetVersion())
	}
	return connect.NewResponse(m), err
}

// GetDesiredSentinelState finds a sentinel by its id.
func (s *Server) GetDesiredSentinelState(
	ctx context.Context,
	r *connect.Request[ctrlv1.GetDesiredSentinelStateRequest],
) (*connect.Response[ctrlv1.SentinelState], error) {
	m := &ctrlv1.SentinelState{}
	err := s.find(ctx, r.Header(), sentinels, func(i statesync.Item) bool {
		ctrlv1.Put(m, order(i), i.Version)
		return m.GetApply().GetSentinelId() == r.Msg.GetSentinelId()
	})
	return connect.NewResponse(m), err
}

// GetDesiredCiliumNetworkPolicyState finds a policy by its id.
func (s *Server) GetDesiredCiliumNetworkPolicyState(
	ctx context.Context,
	r *connect.Request[ctrlv1.GetDesiredCiliumNetworkPolicyStateRequest],
) (*connect.Response[ctrlv1.CiliumNetworkPolicyState], error) {
	m := &ctrlv1.CiliumNetworkPolicyState{}
	err := s.find(ctx, r.Header(), policies, func(i statesync.Item) bool {
		ctrlv1.Put(m, order(i), i.Version)
		return m.GetApply().GetCiliumNetworkPolicyId() == r.Msg.GetCiliumNetworkPolicyId()
	})
	return connect.NewResponse(m), err
}

func (s *Server) report(header http.Header, m proto.Message) error {
	f, err := s.enter(header)
	if err != nil {
		return err
	}
	if f.Report != nil {
		if err := f.Report(m); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports = append(s.reports, m)
	return nil
}

// ReportDeploymentStatus keeps the report.
func (s *Server) ReportDeploymentStatus(
	_ context.Context,
	r *connect.Request[ctrlv1.ReportDeploymentStatusRequest],
) (*connect.Response[ctrlv1.ReportDeploymentStatusResponse], error) {
	return connect.NewResponse(&ctrlv1.ReportDeploymentStatusResponse{}), s.report(r.Header(), r.Msg)
}

// ReportSentinelStatus keeps the report.
func (s *Server) ReportSentinelStatus(
	_ context.Context,
	r *connect.Request[ctrlv1.ReportSentinelStatusRequest],
) (*connect.Response[ctrlv1.ReportSentinelStatusResponse], error) {
	return connect.NewResponse(&ctrlv1.ReportSentinelStatusResponse{}), s.report(r.Header(), r.Msg)
}

// Heartbeat counts.
func (s *Server) Heartbeat(
	_ context.Context,
	r *connect.Request[ctrlv1.HeartbeatRequest],
) (*connect.Response[ctrlv1.HeartbeatResponse], error) {
	s.mu.Lock()
	s.calls++
	s.mu.Unlock()
	if _, err := s.enter(r.Header()); err != nil {
		return nil, err
	}
	at := statesync.Cursor{Epoch: r.Msg.GetEpoch(), Version: r.Msg.GetObservedVersion()}
	if err := at.Mark.UnmarshalText([]byte(r.Msg.GetMark())); err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beats++
	s.acknowledged = at
	s.held = r.Msg.GetHeldDeletions()
	answer := &ctrlv1.HeartbeatResponse{ApprovedDeletions: s.approved}
	if r.Msg.GetClaim() {
		s.epoch++
		answer.AgentEpoch = s.epoch
	}
	return connect.NewResponse(answer), nil
}

// Held returns the deletions that the last heartbeat had, nil for none.
func (s *Server) Held() *ctrlv1.HeldDeletions {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// Approve has the next heartbeats answered with the digest of held deletions.
func (s *Server) Approve(digest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.approved = digest
}

// Instances returns the names of the instances that a control plane would know
// of after the reports so far: by deployment name, in the order of names.
func (s *Server) Instances() map[string][]*ctrlv1.ReportDeploymentStatusRequest_Update_Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string][]*ctrlv1.ReportDeploymentStatusRequest_Update_Instance{}
	for _, m := range s.reports {
		if r, ok := m.(*ctrlv1.ReportDeploymentStatusRequest); ok {
			if d := r.GetDelete(); d != nil {
				delete(found, d.GetK8SName())
			} else if u := r.GetUpdate(); u != nil {
				found[u.GetK8SName()] = u.GetInstances()
			}
		}
	}
	return found
}
