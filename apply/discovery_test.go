package apply_test

import (
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// discovery asks a server for its kinds, as a discovery client does, which would
// cost importers of this module what it requires.
type discovery struct{ config *rest.Config }

func (d discovery) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	client, err := rest.HTTPClientFor(d.config)
	if err != nil {
		return nil, err
	}
	var groups metav1.APIGroupList
	if err := d.get(client, "/apis", &groups); err != nil {
		return nil, err
	}
	paths := []string{"/api/v1"}
	for _, g := range groups.Groups {
		paths = append(paths, "/apis/"+g.PreferredVersion.GroupVersion)
	}
	var lists []*metav1.APIResourceList
	for _, path := range paths {
		list := &metav1.APIResourceList{}
		if err := d.get(client, path, list); err != nil {
			return lists, err
		}
		lists = append(lists, list)
	}
	return lists, nil
}

func (d discovery) get(client *http.Client, path string, into any) error {
	answer, err := client.Get(d.config.Host + path)
	if err != nil {
		return err
	}
	defer answer.Body.Close() //nolint:errcheck // it was only read
	if answer.StatusCode == http.StatusNotFound {
		return nil // a group that another test has just removed
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, answer.Status)
	}
	return json.NewDecoder(answer.Body).Decode(into)
}
