package cloud_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
)

// virtually runs an example in virtual time: 40 minutes of it take no time. It prints
// what do has written to out.
func virtually(do func(ctx context.Context, out *strings.Builder)) {
	var out strings.Builder
	stdout, skip := os.Stdout, flag.Lookup("test.skip").Value
	quiet, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	os.Stdout = quiet // what -v prints of the test inside
	skipped := skip.String()
	_ = skip.Set("") // the test inside matches each pattern, also the one of -skip
	ok := testing.RunTests(
		func(string, string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: "Example", F: func(t *testing.T) { //nolint:thelper // a test of its own
			synctest.Test(t, func(t *testing.T) { do(t.Context(), &out) })
		}}},
	)
	_ = skip.Set(skipped)
	os.Stdout = stdout
	quiet.Close()
	fmt.Print(out.String())
	if !ok {
		fmt.Println("failed")
	}
}
