package regions

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/guard"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/limits"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// Config is what a [Service] needs.
type Config struct {
	// Database has the regions and their desired state. Required. Its Log must be
	// started by the caller.
	Database *db.Database
	// Feed streams the database's Log. Required, to be started by the caller.
	Feed *statesync.Server
	// Bearer is a token that opens every region. Empty: there is none, and each
	// agent needs the token of its region.
	Bearer string
	// TokenLifetime means what it does in a [Store].
	TokenLifetime time.Duration
	// Guard slows down those that guess tokens. Nil: nothing does.
	Guard *guard.Guard
	// Limits keep one region from taking what others need. Nil: there are none.
	Limits *limits.Limits
	// Logger gets a line for each refusal and each row that cannot be sent.
	// Nil: nothing is logged.
	Logger *slog.Logger
	// Registerer gets the metrics. Nil: they are not collected anywhere.
	Registerer prometheus.Registerer
}

// Service answers ctrl.v1.ClusterService. It is safe for concurrent use.
type Service struct {
	ctrlv1connect.UnimplementedClusterServiceHandler

	store   *Store
	feed    *statesync.Server
	gate    agents.Gate
	opened  agents.Streams
	refused refusals
	logger  *slog.Logger
	sent    *prometheus.CounterVec
	skipped *prometheus.CounterVec
	streams *prometheus.GaugeVec
	reports *prometheus.HistogramVec
	open    openStreams
	caches  *caches
	codec   codec
	// patience is set by tests; zero stands for defaultPatience.
	patience time.Duration
}

var _ ctrlv1connect.ClusterServiceHandler = (*Service)(nil)

// New returns a service, or an error that names the field of config that is
// missing or wrong.
func New(config Config) (*Service, error) {
	switch {
	case config.Database == nil:
		return nil, errors.New("cluster.Config: Database is required")
	case config.Feed == nil:
		return nil, errors.New("cluster.Config: Feed is required")
	case config.Bearer != "" && len(config.Bearer) < tokens.MinBytes:
		return nil, errors.New("cluster.Config: Bearer must have at least 16 bytes")
	}
	store := &Store{Database: config.Database, TokenLifetime: config.TokenLifetime}
	s := &Service{
		store: store, feed: config.Feed,
		gate: agents.Gate{
			Scopes: store.Agents(), Shared: config.Bearer, Door: agents.NewDoor(), Guard: config.Guard, Limits: config.Limits,
		},
		logger: cmp.Or(config.Logger, slog.New(slog.DiscardHandler)),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trueup_controlplane_messages_sent_total",
			Help: "Messages sent to streaming agents, by resource type and kind.",
		}, []string{"resource_type", "kind"}),
		skipped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trueup_controlplane_rows_skipped_total",
			Help: "Rows that could not be sent to streaming agents, by resource type and reason.",
		}, []string{"resource_type", "reason"}),
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "trueup_controlplane_streams",
			Help: "Open streams, by region and resource type.",
		}, []string{"region", "resource_type"}),
		reports: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "trueup_controlplane_report_duration_seconds",
			Help: "Time to store a report of an agent, by resource type and result: ok, or the code it was refused with.",
		}, []string{"resource_type", "result"}),
	}
	s.caches = newCaches(&s.codec)
	if config.Registerer != nil {
		for _, c := range []prometheus.Collector{s.sent, s.skipped, s.streams, s.reports, s.caches.kept, newLeases(s.store, s.logger)} {
			if err := config.Registerer.Register(c); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// GetDesiredDeploymentState answers what is wanted of one deployment.
func (s *Service) GetDesiredDeploymentState(
	ctx context.Context,
	r *connect.Request[ctrlv1.GetDesiredDeploymentStateRequest],
) (*connect.Response[ctrlv1.DeploymentState], error) {
	state := &ctrlv1.DeploymentState{}
	if err := s.point(ctx, deployments, "deployment_id", r.Msg.GetDeploymentId(), state); err != nil {
		return nil, err
	}
	return connect.NewResponse(state), nil
}

// GetDesiredSentinelState answers what is wanted of one sentinel.
func (s *Service) GetDesiredSentinelState(
	ctx context.Context,
	r *connect.Request[ctrlv1.GetDesiredSentinelStateRequest],
) (*connect.Response[ctrlv1.SentinelState], error) {
	state := &ctrlv1.SentinelState{}
	if err := s.point(ctx, sentinels, "sentinel_id", r.Msg.GetSentinelId(), state); err != nil {
		return nil, err
	}
	return connect.NewResponse(state), nil
}

// GetDesiredCiliumNetworkPolicyState answers what is wanted of one policy.
func (s *Service) GetDesiredCiliumNetworkPolicyState(
	ctx context.Context,
	r *connect.Request[ctrlv1.GetDesiredCiliumNetworkPolicyStateRequest],
) (*connect.Response[ctrlv1.CiliumNetworkPolicyState], error) {
	state := &ctrlv1.CiliumNetworkPolicyState{}
	if err := s.point(ctx, policies, "cilium_network_policy_id", r.Msg.GetCiliumNetworkPolicyId(), state); err != nil {
		return nil, err
	}
	return connect.NewResponse(state), nil
}

// point fills message with the desired state of one resource of the caller's
// region.
func (s *Service) point(ctx context.Context, collection, field, id string, message ctrlv1.Message) error {
	caller, err := s.admit(ctx, "")
	if err != nil {
		return err
	}
	if id == "" {
		return connect.NewError(connect.CodeInvalidArgument, errors.New(field+": must not be empty"))
	}
	if err := plain(field, id); err != nil {
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	var desired, spec string
	err = s.store.Database.Read(ctx, func(tx *db.Tx) error {
		var err error
		desired, spec, err = load(ctx, tx, collection, caller.ID, id)
		return err
	})
	switch {
	case errors.Is(err, ErrUnknownResource):
		return connect.NewError(connect.CodeNotFound, errors.New("the region has no such resource, which is no order to delete it"))
	case err != nil:
		return s.internal(ctx, "point query", err)
	}
	order, reason := decode(collection, desired, []byte(spec))
	if reason != "" {
		s.logger.ErrorContext(
			ctx,
			"resource cannot be answered",
			slog.String("collection", collection),
			slog.String("id", id),
			slog.String("reason", reason),
		)
		return connect.NewError(connect.CodeInternal, errors.New(reason))
	}
	ctrlv1.Put(message, order, 0)
	return nil
}

// Heartbeat notes that the region's agent is alive.
func (s *Service) Heartbeat(
	ctx context.Context,
	r *connect.Request[ctrlv1.HeartbeatRequest],
) (*connect.Response[ctrlv1.HeartbeatResponse], error) {
	caller, err := s.caller(ctx, r.Msg.GetRegion())
	if err != nil {
		return nil, err
	}
	if err := s.claim(ctx, caller, r.Msg.GetAgentEpoch()); err != nil {
		return nil, err
	}
	if err := s.current(ctx, caller, made{r.Msg.GetAgentEpoch(), r.Msg.GetSequence()}); err != nil {
		return nil, err
	}
	if err := s.acknowledge(ctx, caller, r.Msg); err != nil {
		return nil, err
	}
	if !r.Msg.GetClaim() {
		held, err := heldOf(r.Msg.GetHeldDeletions())
		if err != nil {
			return nil, err
		}
		problems, err := problemsOf(r.Msg.GetProblems())
		if err != nil {
			return nil, err
		}
		approved, err := s.store.hold(ctx, caller.ID, held, problems)
		if err != nil {
			return nil, s.internal(ctx, "held deletions", err)
		}
		return connect.NewResponse(&ctrlv1.HeartbeatResponse{ApprovedDeletions: approved}), nil
	}
	epoch, err := s.store.Claim(ctx, caller.ID, r.Msg.GetYield())
	if errors.Is(err, ErrHeld) {
		return nil, refuse("epoch-held", "another agent of this region reports; this one takes over once that one is silent")
	}
	if err != nil {
		return nil, s.internal(ctx, "claim", err)
	}
	s.logger.InfoContext(
		ctx,
		"agent started",
		slog.String("region", caller.Scope),
		slog.String("cell", caller.cell),
		slog.Uint64("agent_epoch", epoch),
	)
	return connect.NewResponse(&ctrlv1.HeartbeatResponse{AgentEpoch: epoch}), nil
}

// current refuses an epoch that is not the last one given to an agent of the region. As
// long as none was given, the agent chooses. An agent without the extension sends neither an
// epoch nor a number. Of two agents the one that was given an epoch later
// reports, so that a start after a crash does so at once.
func (s *Service) current(ctx context.Context, c caller, at made) error {
	epoch := at.epoch
	if at == (made{}) || c.AgentEpoch == 0 || epoch == c.AgentEpoch {
		return nil
	}
	if s.refused.isNew(c.ID, "epoch of "+c.cell, time.Now()) {
		s.logger.WarnContext(ctx, "report of another agent process refused", slog.String("region", c.Scope), slog.String("cell", c.cell),
			slog.Uint64("agent_epoch", epoch), slog.Uint64("want", c.AgentEpoch))
	}
	if epoch == 0 {
		return refuse("stale-epoch", "sequence: is set without agent_epoch; claim one with a heartbeat")
	}
	if epoch < c.AgentEpoch {
		return refuse("superseded", "another agent of this region has started after this one; claim with yield, and report nothing until then")
	}
	return refuse("stale-epoch", "a restored database has made this epoch invalid; claim one with a heartbeat")
}

// acknowledge notes how far the agent has dealt with the log of its region.
func (s *Service) acknowledge(ctx context.Context, c caller, m *ctrlv1.HeartbeatRequest) error {
	if m.GetAgentEpoch() == 0 || m.GetEpoch() == "" {
		return nil
	}
	applied := statesync.Cursor{Epoch: m.GetEpoch(), Version: m.GetObservedVersion()}
	if err := applied.Mark.UnmarshalText([]byte(m.GetMark())); err != nil {
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	_, err := s.store.Database.Log.Report(ctx, c.Scope, statesync.Report{
		Reader: cmp.Or(c.cell, "agent"), Session: m.GetAgentEpoch(), Sequence: m.GetSequence(), Applied: applied,
	})
	switch {
	case errors.Is(err, statesync.ErrInvalid):
		return connect.NewError(connect.CodeInvalidArgument, err)
	case errors.Is(err, statesync.ErrUnknownScope):
		return nil // the log of a new region comes soon
	case err != nil:
		return s.internal(ctx, "acknowledge", err)
	}
	return nil
}

// internal logs err, which the agent is not sent.
func (s *Service) internal(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return connect.NewError(connect.CodeCanceled, ctx.Err())
	}
	if errors.Is(err, db.ErrBusy) || errors.Is(err, db.ErrFull) || errors.Is(err, context.DeadlineExceeded) {
		s.logger.WarnContext(ctx, "request refused", slog.String("request", what), slog.Any("error", err))
		return connect.NewError(connect.CodeUnavailable, errors.New("the database is busy, or its disk is full; come back later"))
	}
	s.logger.ErrorContext(ctx, "request failed", slog.String("request", what), slog.Any("error", err))
	return connect.NewError(connect.CodeInternal, errors.New("the control plane failed; its log says why"))
}

// unknownRegion is the reason of a region that is not registered, or not the one that its
// log was made for.
const unknownRegion = "unknown-region"

// reasonOf returns the reason of an error that refuse has made, none of any other.
func reasonOf(failure *connect.Error) string {
	for _, detail := range failure.Details() {
		if value, err := detail.Value(); err == nil {
			if d, ok := value.(*ctrlv1.ErrorDetail); ok {
				return d.GetReason()
			}
		}
	}
	return ""
}

// refuse returns a failed precondition with a reason that agents branch on.
func refuse(reason, message string) error {
	return because(reason, connect.NewError(connect.CodeFailedPrecondition, errors.New(message)))
}

// because adds the reason to an error, and returns it.
func because(reason string, failure *connect.Error) *connect.Error {
	if detail, err := connect.NewErrorDetail(&ctrlv1.ErrorDetail{Reason: reason}); err == nil {
		failure.AddDetail(detail)
	}
	return failure
}
