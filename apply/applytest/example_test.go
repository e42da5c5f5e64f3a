package applytest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// reporter prints what an assertion fails with. In a test it is t.
type reporter struct{}

func (reporter) Helper() {}

func (reporter) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// A Transport sees what a program sends, and fails what it is told to.
func ExampleTransport() {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	net := applytest.Transport{Fault: func(r applytest.Request) applytest.Fault {
		return applytest.Fault{LoseAnswer: r.Verb == "delete"}
	}}
	client := server.Client()
	client.Transport = net.Wrap(client.Transport) // for client-go: config.Wrap(net.Wrap)
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		url := server.URL + "/apis/apps/v1/namespaces/shop/deployments/web"
		r, err := http.NewRequest(method, url, http.NoBody) //nolint:noctx // a server of its own
		if err != nil {
			fmt.Println(err)
			return
		}
		if answer, err := client.Do(r); err == nil {
			_ = answer.Body.Close()
		}
	}
	for _, r := range net.Requests() {
		fmt.Println(r.Number, r)
	}
	net.NoWrites(reporter{})
	// Output:
	// 1 get deployments.apps shop/web
	// 2 delete deployments.apps shop/web
	// a write where none was due: delete deployments.apps shop/web
}
