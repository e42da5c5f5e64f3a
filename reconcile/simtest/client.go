package simtest

import (
	"cmp"
	"encoding/json"
	"fmt"
)

// Client writes for the user or for an actor.
type Client struct {
	world *World
	by    string
}

// Create is as World.Create, but what it creates is not what the program has to
// achieve.
func (c Client) Create(o Object) error {
	k, err := c.world.server.keyOf(o)
	if err != nil {
		return err
	}
	a, err := c.write("create", k, o)
	if err == nil && !a.failed() && c.by == "user" {
		c.world.users[a.body.UID()] = true
	}
	return cmp.Or(err, a.err())
}

// Update is as World.Update.
func (c Client) Update(resource, namespace, name string, edit func(Object)) error {
	return c.update(keyTo(resource, namespace, name), edit)
}

func (c Client) update(k key, edit func(Object)) error {
	server := c.world.server
	server.mu.Lock()
	o := clone(server.objects[k])
	server.mu.Unlock()
	if o == nil {
		return fmt.Errorf("simtest: %s does not exist", k)
	}
	edit(o)
	a, err := c.write("update", k, o)
	if err := cmp.Or(err, a.err()); err != nil {
		return err
	}
	call := server.local(c.by, "update", k, nil)
	if !call.kind.Status {
		return nil
	}
	status := clone(a.body)
	status.keep(o, "status")
	call.Subresource = "status"
	if call.body, err = json.Marshal(status); err != nil {
		return err
	}
	return server.serve(call).err()
}

// Delete is as World.Delete.
func (c Client) Delete(resource, namespace, name string) error {
	a, err := c.write("delete", keyTo(resource, namespace, name), Object{"propagationPolicy": "Background"})
	return cmp.Or(err, a.err())
}

// DeleteNow deletes an object without grace, as a kubelet does once the containers
// of a pod have ended.
func (c Client) DeleteNow(resource, namespace, name string) error {
	a, err := c.write("delete", keyTo(resource, namespace, name), Object{"gracePeriodSeconds": 0})
	return cmp.Or(err, a.err())
}

// Evict evicts a pod, as a drain does. The error is that of the server, such as that
// a PodDisruptionBudget does not allow it.
func (c Client) Evict(namespace, name string) error {
	server := c.world.server
	call := server.local(c.by, "create", keyTo("pods", namespace, name), nil)
	call.Subresource = "eviction"
	var err error
	if call.body, err = json.Marshal(Object{"metadata": map[string]any{"namespace": namespace, "name": name}}); err != nil {
		return err
	}
	a := server.serve(call)
	c.world.Log("%s: evict %s/%s: %s", c.by, namespace, name, a)
	return a.err()
}

func (c Client) write(verb string, k key, o Object) (*answer, error) {
	var body []byte
	if o != nil {
		var err error
		if body, err = json.Marshal(o); err != nil {
			return &answer{}, err
		}
	}
	a := c.world.server.serve(c.world.server.local(c.by, verb, k, body))
	c.world.Log("%s: %s %s: %s", c.by, verb, k, a)
	return a, nil
}

// String is the code, and what a person wants to know with it.
func (a *answer) String() string {
	if a.failed() {
		return fmt.Sprintf("%d %s", a.code, a.message())
	}
	return fmt.Sprint(a.code)
}

func (a *answer) err() error {
	if a.failed() {
		return fmt.Errorf("simtest: %d: %s", a.code, a.message())
	}
	return nil
}
