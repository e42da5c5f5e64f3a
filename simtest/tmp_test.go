package simtest_test

import "testing"

func TestTmp(t *testing.T) {
	for range 1 {
		t.Log(scenario(controller{}).Simulate(t, 2).Trace)
	}
}
