package operator

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
	outside "github.com/seed-9e1ffd66/trueup/reconcile/external"
)

// managedPart is a service that exists already: variables of the app and nothing else.
func (p *pass) managedPart(name, condition, variable, address, child string, enabled bool, data map[string]string) *part {
	t := &part{
		outside: outside.Part{Name: name, Wanted: enabled}, condition: condition,
		child: apply.ID{Kind: "ConfigMap", Namespace: p.subject.app.Namespace, Name: child},
		configs: func(context.Context) ([]*unstructured.Unstructured, error) {
			return []*unstructured.Unstructured{p.config(child, data)}, nil
		},
	}
	if enabled && address == "" {
		t.outside.Err = external.Judged(unset(name, variable))
	}
	return t
}

func (p *pass) redisPart() *part {
	return p.managedPart(
		"redis",
		v1alpha1.ConditionRedis,
		"REDIS_ENDPOINT",
		p.op.settings.Redis,
		p.subject.names.RedisConfig(),
		p.subject.app.Spec.Redis.Enabled,
		p.op.settings.redisVariables(),
	)
}

func (p *pass) searchPart() *part {
	return p.managedPart(
		"search",
		v1alpha1.ConditionSearch,
		"OPENSEARCH_ENDPOINT",
		p.op.settings.OpenSearch,
		p.subject.names.SearchConfig(),
		p.subject.app.Spec.Search.Enabled,
		p.op.settings.searchVariables(p.subject.names),
	)
}
