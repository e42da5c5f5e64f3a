package simtest_test

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// A Server answers any client that takes an http.RoundTripper. A write that was
// computed from an old version conflicts.
func ExampleServer() {
	server := &simtest.Server{Kinds: []simtest.Kind{{Version: "v1", Resource: "configmaps", Kind: "ConfigMap"}}}
	client := &http.Client{Transport: server} // for client-go: rest.Config{Host: "http://simtest", Transport: server}

	const path = "http://simtest/api/v1/namespaces/shop/configmaps"
	for _, request := range []struct{ method, url, body string }{
		{http.MethodPost, path, `{"metadata":{"name":"web"},"data":{"color":"red"}}`},
		{http.MethodPut, path + "/web", `{"metadata":{"name":"web","resourceVersion":"101"},"data":{"color":"blue"}}`},
		{http.MethodPut, path + "/web", `{"metadata":{"name":"web","resourceVersion":"101"},"data":{"color":"green"}}`},
	} {
		r, err := http.NewRequest(request.method, request.url, strings.NewReader(request.body)) //nolint:noctx // it answers at once
		if err != nil {
			fmt.Println(err)
			return
		}
		answer, err := client.Do(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(request.method, answer.StatusCode, answer.Status)
		if err := answer.Body.Close(); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// POST 201 Created
	// PUT 200 OK
	// PUT 409 Conflict
}
