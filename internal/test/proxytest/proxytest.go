// Package proxytest answers in place of a server, as a proxy, a login page or a bad line between it and its
// client does.
package proxytest

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Answer is one that is not of the server.
type Answer struct {
	// Name is one word or two, and Says what an error about it has to say.
	Name, Says string

	text string // with %s for the type of the request
}

// Elsewhere is the host that redirects name.
const Elsewhere = "login.example.net"

const page = "Content-Type: text/html; charset=utf-8\r\nContent-Length: 30\r\n\r\n<html><p>Please sign in</html>"

// Answers are those that a client has to survive: with -short, one of each kind.
func Answers() []Answer {
	all := []Answer{
		{"400", "400 Bad Request with text/html", "400 Bad Request\r\n" + page},
		{"403", "403 Forbidden with text/html", "403 Forbidden\r\n" + page},
		{"502", "502 Bad Gateway with text/html", "502 Bad Gateway\r\n" + page},
		{"login page", "200 OK with text/html: is there a proxy or a login page in between?", "200 OK\r\n" + page},
		{"another API", "400", "400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 22\r\n\r\n" + `{"message":"bad host"}`},
		{"empty", "", "200 OK\r\nContent-Length: 0\r\n\r\n"},
		{"short", "unexpected EOF", "200 OK\r\nContent-Type: %s\r\nContent-Length: 4000\r\n\r\n\x00\x00\x00\x01\x00" + `{"version":"e`},
		{"without its end", "unexpected EOF", "200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\nd\r\n" + `{"version":"e` + "\r\n"},
	}
	// It has all that a control plane without extensions, and one that renews a token, would answer.
	foreign := `{"version":"1.0","status":"ok","services":[],"token":"of-another-use"}`
	all = append(all, Answer{
		"foreign", "", fmt.Sprintf("200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(foreign), foreign),
	})
	for _, status := range []int{301, 302, 307, 308} {
		says := fmt.Sprintf("%d %s", status, http.StatusText(status))
		all = append(all, Answer{
			fmt.Sprint(status), says + " to https://" + Elsewhere + ": is there a proxy or a login page in between",
			says + "\r\nLocation: https://" + Elsewhere + "/in?state=secret\r\nContent-Length: 0\r\n\r\n",
		})
	}
	if testing.Short() {
		like := []string{"400", "403", "502", "without its end", "301", "302", "308"}
		return slices.DeleteFunc(all, func(a Answer) bool { return slices.Contains(like, a.Name) })
	}
	return all
}

// To returns the answer to a request, whose body it closes.
func (a Answer) To(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body) // as much of it as there is
		_ = r.Body.Close()                 // it was only read
	}
	kind := r.Header.Get("Content-Type")
	if kind == "" {
		kind = "application/json"
	}
	return http.ReadResponse(bufio.NewReader(strings.NewReader("HTTP/1.1 "+strings.Replace(a.text, "%s", kind, 1))), r)
}

// Proxy may answer in place of a server. It is safe for concurrent use.
type Proxy struct {
	// Home is the host of the server.
	Home string

	mu        sync.Mutex
	answer    *Answer
	only      func(*http.Request) bool
	answered  map[string]int
	strangers map[string]bool
}

// Put has the requests for which only is true answered so from now on; nil ends it.
func (p *Proxy) Put(a *Answer, only func(*http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer, p.only, p.answered = a, only, map[string]int{}
}

// Answered returns how many requests were answered since Put, by the last part of their paths.
func (p *Proxy) Answered() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.answered)
}

// Strangers returns the hosts of requests that were for another host than Home.
func (p *Proxy) Strangers() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.strangers))
}

// Before returns a transport to the server behind next.
func (p *Proxy) Before(next http.RoundTripper) http.RoundTripper { return before{p, next} }

type before struct {
	proxy *Proxy
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b before) RoundTrip(r *http.Request) (*http.Response, error) {
	if a := b.proxy.place(r); a != nil {
		return a.To(r)
	}
	return b.next.RoundTrip(r)
}

// place returns the answer to a request, nil for the server's own.
func (p *Proxy) place(r *http.Request) *Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.URL.Host != p.Home {
		if p.strangers == nil {
			p.strangers = map[string]bool{}
		}
		p.strangers[r.URL.Host] = true
	}
	if p.answer == nil || p.only != nil && !p.only(r) {
		return nil
	}
	p.answered[r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]]++
	return p.answer
}
