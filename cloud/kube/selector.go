package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// selector returns the requirements of s in a stable order: nil for nil, which
// selects nothing, and empty for an empty one, which selects everything.
func selector(s *metav1.LabelSelector) (demand.Selector, error) {
	parsed, err := metav1.LabelSelectorAsSelector(s)
	if err != nil || s == nil {
		return nil, err
	}
	requirements, _ := parsed.Requirements()
	all := make(demand.Selector, 0, len(requirements))
	for _, r := range requirements {
		one := demand.Requirement{Key: r.Key(), Operator: operator(r.Operator()), Values: r.ValuesUnsorted()}
		if len(one.Values) == 0 {
			one.Values = nil
		}
		slices.Sort(one.Values)
		if !slices.ContainsFunc(all, func(other demand.Requirement) bool {
			return other.Key == one.Key && other.Operator == one.Operator && slices.Equal(other.Values, one.Values)
		}) {
			all = append(all, one)
		}
	}
	return all, nil
}

func operator(o selection.Operator) demand.Operator {
	switch o {
	case selection.In, selection.Equals, selection.DoubleEquals:
		return demand.In
	case selection.NotIn, selection.NotEquals:
		return demand.NotIn
	case selection.Exists:
		return demand.Exists
	case selection.DoesNotExist:
		return demand.DoesNotExist
	case selection.GreaterThan:
		return demand.Gt
	case selection.LessThan:
		return demand.Lt
	default:
		return demand.Operator(o) // which is never met
	}
}

// nodeTerms never returns an empty list, which would admit every node. A term
// that the scheduler cannot read becomes one that selects no node, as it does
// there.
func nodeTerms(terms []corev1.NodeSelectorTerm) []demand.NodeTerm {
	all := make([]demand.NodeTerm, 0, max(len(terms), 1))
	for i := range terms {
		all = append(all, nodeTerm(&terms[i]))
	}
	if len(all) == 0 {
		all = append(all, demand.NodeTerm{})
	}
	return all
}

func nodeTerm(t *corev1.NodeSelectorTerm) (term demand.NodeTerm) {
	for _, e := range t.MatchExpressions {
		op, known := operators[e.Operator]
		if !known {
			return demand.NodeTerm{}
		}
		if _, err := labels.NewRequirement(e.Key, op, e.Values); err != nil {
			return demand.NodeTerm{}
		}
		term.Labels = append(term.Labels, demand.Requirement{Key: e.Key, Operator: operator(op), Values: slices.Clone(e.Values)})
	}
	for _, f := range t.MatchFields {
		op := operator(operators[f.Operator])
		if f.Key != metav1.ObjectNameField || len(f.Values) != 1 || op != demand.In && op != demand.NotIn {
			return demand.NodeTerm{}
		}
		term.Names = append(term.Names, demand.Requirement{Key: f.Key, Operator: op, Values: slices.Clone(f.Values)})
	}
	return term
}

//nolint:gochecknoglobals // a table
var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn:           selection.In,
	corev1.NodeSelectorOpNotIn:        selection.NotIn,
	corev1.NodeSelectorOpExists:       selection.Exists,
	corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt:           selection.GreaterThan,
	corev1.NodeSelectorOpLt:           selection.LessThan,
}
