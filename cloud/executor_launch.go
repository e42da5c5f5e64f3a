package cloud

import (
	"context"
	"errors"
	"fmt"
)

// maxAttempts bounds how often one launch is tried with a new token because the
// machines of the old one are terminated.
const maxAttempts = 3

// launch records each launch, calls the cloud, and records the answer. A launch
// that the cloud has refused as a whole is erased; one whose answer is unknown
// stays recorded, and is repeated with its token by a later plan. If a repeated launch
// is throttled or rejected, that proves nothing about the first call. If the cloud has
// no machine for it, the first call created none either: otherwise the token would have
// returned them.
func (x *execution) launch(ctx context.Context, group []*Result) {
	for _, r := range group {
		r.Launch, r.Err = x.launchOne(ctx, r.Action)
	}
}

func (x *execution) launchOne(ctx context.Context, a Action) (*LaunchIntent, error) {
	template, ok := x.pool.template(a.Template)
	if !ok {
		return nil, fmt.Errorf("template %q is not one of the pool", a.Template)
	}
	if x.executor.Config == nil {
		return nil, errors.New("cloud: Executor.Config: is required for launches")
	}
	config, err := x.executor.Config(a.Template)
	if err != nil {
		return nil, fmt.Errorf("template %q: %w", a.Template, err)
	}
	intent := LaunchIntent{
		Operation: a.Operation,
		Ordinal:   a.Ordinal,
		Attempt:   a.Attempt,
		Template:  a.Template,
		Hash:      template.Hash,
		Count:     a.Count,
		Since:     x.executor.now(),
	}
	if !a.Recorded {
		if err := x.executor.Journal.Record(ctx, intent); err != nil {
			return &intent, fmt.Errorf("record the intent: %w", err)
		}
	}
	for {
		config.Token, config.Tags = intent.Operation, x.pool.Scope.LaunchTags(intent.Operation, config.Tags)
		config.PoolName, config.ClusterName = x.pool.Scope.Pool, x.pool.Scope.Cluster
		instances, err := x.provider.LaunchInstances(ctx, config, intent.Count)
		switch {
		case (errors.Is(err, ErrTokenSpent) || len(instances) > 0 && allEnding(instances)) && intent.Attempt < maxAttempts:
			// The token belongs to an earlier launch, whose machines are terminated.
			intent = intent.next(x.pool.Scope.PoolUID, x.executor.now())
			if err := x.executor.Journal.Record(ctx, intent); err != nil {
				return &intent, fmt.Errorf("record the intent: %w", err)
			}
			continue
		case len(instances) > 0 && (err == nil || refused(err)):
			intent.IDs, intent.Since = nil, x.executor.now()
			for _, i := range instances {
				intent.IDs = append(intent.IDs, i.ID)
			}
			return &intent, errors.Join(err, x.executor.Journal.Record(ctx, intent))
		case refused(err) && (!a.Recorded || errors.Is(err, ErrNoCapacity) || errors.Is(err, ErrQuotaExceeded)):
			if failed := x.executor.Journal.Erase(ctx, intent.Operation); failed != nil {
				return &intent, errors.Join(err, fmt.Errorf("erase the intent: %w", failed))
			}
			return nil, err
		default:
			return &intent, err
		}
	}
}

// refused reports whether the cloud has reported that it created nothing, or nothing
// more. After any other error a machine may exist.
func refused(err error) bool {
	return errors.Is(err, ErrNoCapacity) || errors.Is(err, ErrQuotaExceeded) || errors.Is(err, ErrThrottled) || errors.Is(err, ErrRejected)
}

func allEnding(instances []Instance) bool {
	for _, i := range instances {
		if !i.State.Ending() {
			return false
		}
	}
	return true
}
