package cloud_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
)

// virtually calls do in a bubble of testing/synctest, in which hours pass at once,
// and prints what it has printed to out. An example has no testing.T of its own.
func virtually(do func(ctx context.Context, out *strings.Builder)) {
	var out strings.Builder
	stdout := os.Stdout
	quiet, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	os.Stdout = quiet // what -v prints of the test inside
	ok := testing.RunTests(
		func(string, string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: "Example", F: func(t *testing.T) { //nolint:thelper // a test of its own
			synctest.Test(t, func(t *testing.T) { do(t.Context(), &out) })
		}}},
	)
	os.Stdout = stdout
	quiet.Close()
	fmt.Print(out.String())
	if !ok {
		fmt.Println("failed")
	}
}
