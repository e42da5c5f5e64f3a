package starbase

import (
	"maps"
	"math/big"
	"slices"
	"strings"
)

// suffixes are the powers that the letters behind a quantity stand for.
var suffixes = map[string][2]int64{ //nolint:gochecknoglobals // never written to
	"n": {10, -9}, "u": {10, -6}, "m": {10, -3}, "": {10, 0}, "k": {10, 3}, "M": {10, 6}, "G": {10, 9}, "T": {10, 12}, "P": {10, 15}, "E": {10, 18},
	"Ki": {2, 10}, "Mi": {2, 20}, "Gi": {2, 30}, "Ti": {2, 40}, "Pi": {2, 50}, "Ei": {2, 60},
}

// quantity returns the value of a Kubernetes quantity, false if it is none.
func quantity(text string) (value *big.Rat, ok bool) {
	if !quantityPattern.MatchString(text) { // it bounds the exponent, too
		return nil, false
	}
	digits := strings.TrimRight(text, "numkMGTPEi")
	power, known := suffixes[text[len(digits):]]
	value, ok = new(big.Rat).SetString(strings.TrimSuffix(digits, "."))
	if !known || !ok {
		return nil, false
	}
	factor := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(power[0]), big.NewInt(max(power[1], -power[1])), nil))
	if power[1] < 0 {
		factor.Inv(factor)
	}
	return value.Mul(value, factor), true
}

// ordered requires that no request is above its limit: the API server refuses such a pod.
func (v *violations) ordered(r Resources) {
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request, isRequest := quantity(r.Requests[name])
		limit, isLimit := quantity(r.Limits[name])
		if isRequest && isLimit {
			v.require("resources.requests."+name, r.Requests[name], request.Cmp(limit) <= 0, "at most resources.limits."+name+", "+r.Limits[name])
		}
	}
}
