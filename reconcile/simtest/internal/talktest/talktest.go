// Package talktest holds the same random conversation with two API servers, and
// reports where their answers differ: in the code, the reason and the details of a
// failure, in the body of a success, and in the events of watches. Versions, UIDs and
// generated names are compared by the order in which they were first seen, times by
// whether they are set, managedFields not at all.
//
// What is known to differ and is not said, since one answer would explain all that
// follow:
//
//   - A write that changes nothing but managedFields makes a version in a real server,
//     such as a scale to the number that there is, or a deletionTimestamp for an object
//     that has one.
//   - Defaults and validation of built-in schemas: Pods, Deployments and
//     PodDisruptionBudgets are sent with all that a schema would add, and are never
//     changed to what it would refuse. No number of a status is set to 0, which it drops.
//   - Reads of resourceVersion 0, which may be old, and versions that are so old that the
//     cache of a real server has dropped them.
package talktest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strings"
	"time"
)

// Side is one of the two servers.
type Side struct {
	Client *http.Client
	Host   string
}

// Known is a difference that stays, with its reason.
type Known struct {
	Reason string
	// Fits reports whether a difference is this one.
	Fits func(r Request, genuine, simulated Answer) bool
}

// Conversation is what is said.
type Conversation struct {
	Real, Simulated Side
	Seed            uint64
	Steps           int
	// Namespace exists in both servers, and so does Namespace-b.
	Namespace string
	// Machinery is whether JSON and strategic merge patches and applies are sent.
	Machinery bool
	// Script is whether a written part comes first.
	Script bool
	Known  []Known

	random  *rand.Rand
	written []Request // to say first
	step    int
	sides   [2]Side
	names   [2]map[string]string // generated names, UIDs and versions, and what they are called
	objects map[string]*object
	tokens  map[string][2]string // to continue a list, by its path
	lists   map[string]mark
	watches []*watch
	met     map[string]int
	codes   map[int]int
}

// mark is a version of both servers.
type mark struct {
	step    int
	version [2]string
}

// object is what the last answers said about one.
type object struct {
	kind           *kind
	namespace      string
	name           string // what it is called
	real           [2]string
	uid, now, then [2]string
	node           string
}

// Request is one that was sent to both servers.
type Request struct {
	Method, Path, Form, Accept, Body string

	bound *object // to node-2, if it succeeds
}

// String returns the request in one line.
func (r Request) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s %s", r.Method, r.Path, r.Form, r.Accept, r.Body))
}

// Answer is one server's, without what always differs.
type Answer struct {
	Code int
	Body map[string]any
}

// String returns the answer in one line.
func (a Answer) String() string {
	data, err := json.Marshal(a.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", a.Code, data)
}

// Result is how a conversation went.
type Result struct {
	// Steps is how many requests were sent to each server.
	Steps int
	// Difference is the first one that is not known, empty if there is none.
	Difference string
	// Met counts the known ones by reason.
	Met map[string]int
	// Codes counts the answers by code.
	Codes map[int]int
}

// Hold holds the conversation. It ends with the first difference that is not known.
func (c *Conversation) Hold(ctx context.Context) (Result, error) {
	c.random = rand.New(rand.NewPCG(c.Seed, 1)) //nolint:gosec // no secret
	c.sides = [2]Side{c.Real, c.Simulated}
	c.names = [2]map[string]string{{}, {}}
	c.objects, c.tokens, c.lists = map[string]*object{}, map[string][2]string{}, map[string]mark{}
	if c.Script {
		c.written = c.script()
	}
	c.met, c.codes = map[string]int{}, map[int]int{}
	var difference string
	var err error
	for c.step = 1; c.step <= c.Steps && difference == "" && err == nil; c.step++ {
		difference, err = c.say(ctx)
	}
	for _, w := range c.watches {
		if difference == "" && err == nil {
			difference, err = c.end(ctx, w)
		}
		w.close()
	}
	return Result{Steps: c.step - 1, Difference: difference, Met: c.met, Codes: c.codes}, err
}

// ask sends a request to both servers and compares the answers.
func (c *Conversation) ask(ctx context.Context, r Request) (difference string, err error) {
	var raw [2]Answer
	for i := range c.sides {
		if raw[i], err = c.send(ctx, i, r); err != nil {
			return "", fmt.Errorf("step %d: %s: %w", c.step, r, err)
		}
	}
	c.codes[raw[0].Code]++
	answers := [2]Answer{}
	for i := range raw {
		answers[i] = Answer{raw[i].Code, c.normal(i, r, raw[i].Body)}
	}
	c.learn(r, raw)
	if r.bound != nil && raw[0].Code == http.StatusCreated {
		r.bound.node = "node-2"
	}
	if raw[0].Code == raw[1].Code && reflect.DeepEqual(answers[0].Body, answers[1].Body) {
		return "", nil
	}
	for _, k := range c.Known {
		if k.Fits(r, answers[0], answers[1]) {
			c.met[k.Reason]++
			return "", nil
		}
	}
	message := func(i int) string { return fmt.Sprint(raw[i].Body["message"], managers(raw[i].Body)) }
	return fmt.Sprintf(
		"seed %d, step %d: %s\ndiffer at: %s\n     real: %s %s\nsimulated: %s %s", c.Seed, c.step, r,
		strings.Join(differing("", answers[0].Body, answers[1].Body), "; "), answers[0], message(0), answers[1], message(1),
	), nil
}

// managers are the managedFields of an object, which explain some versions.
func managers(body map[string]any) string {
	about, _ := body["metadata"].(map[string]any)
	data, err := json.Marshal(about["managedFields"])
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// open sends a request to one of the servers.
func (c *Conversation) open(ctx context.Context, i int, r Request) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, r.Method, c.sides[i].Host+c.fill(i, r.Path), strings.NewReader(c.fill(i, r.Body)))
	if err != nil {
		return nil, err
	}
	if r.Form != "" {
		request.Header.Set("Content-Type", r.Form)
	}
	request.Header.Set("Accept", "application/json")
	if r.Accept != "" {
		request.Header.Set("Accept", r.Accept)
	}
	return c.sides[i].Client.Do(request)
}

func (c *Conversation) send(ctx context.Context, i int, r Request) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	response, err := c.open(ctx, i, r)
	if err != nil {
		return Answer{}, err
	}
	defer response.Body.Close() //nolint:errcheck // nothing was written
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Code: response.StatusCode}
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&a.Body); err != nil {
		a.Body = map[string]any{"kind": "Status", "reason": "NotFound", "text": string(data)}
	}
	return a, nil
}
