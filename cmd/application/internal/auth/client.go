package auth

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"slices"
)

// pkce is the attribute that makes a public client prove that a code is its own.
const pkce = "pkce.code.challenge.method"

// keepClient makes the client of a realm, or writes what differs of it: a public client
// with the redirect URIs and web origins of all objects that use the realm.
func (s *Server) keepClient(ctx context.Context, r *realm, name string, result *Result) error {
	path := "/" + url.PathEscape(r.Realm) + "/clients"
	var found []map[string]any
	if err := s.call(ctx, http.MethodGet, path+"?clientId="+url.QueryEscape(name), nil, &found); err != nil {
		return err
	}
	fields := clientFields(r, name)
	if len(found) == 0 {
		fields["attributes"] = map[string]any{pkce: "S256"}
		if err := s.call(ctx, http.MethodPost, path, fields, nil); err != nil {
			return err
		}
		result.Done = append(result.Done, "create client "+name)
		return nil
	}
	client, differs := found[0], false
	for field, value := range fields {
		if !same(client[field], value) {
			client[field], differs = value, true
		}
	}
	attributes, _ := client["attributes"].(map[string]any)
	if attributes == nil {
		attributes = map[string]any{}
	}
	if attributes[pkce] != "S256" {
		attributes[pkce], differs = "S256", true
	}
	if !differs {
		return nil
	}
	client["attributes"] = attributes
	id, _ := client["id"].(string)
	if err := s.call(ctx, http.MethodPut, path+"/"+url.PathEscape(id), client, nil); err != nil {
		return err
	}
	result.Done = append(result.Done, "update client "+name)
	return nil
}

func clientFields(r *realm, name string) map[string]any {
	return map[string]any{
		"clientId": name, "protocol": "openid-connect", "enabled": true, "publicClient": true,
		"standardFlowEnabled": true, "implicitFlowEnabled": false, "directAccessGrantsEnabled": false, "serviceAccountsEnabled": false,
		"redirectUris": r.values(redirectField), "webOrigins": r.values(originField),
	}
}

// same compares a field as Keycloak shows it with the desired value. Lists have no order.
func same(found, wanted any) bool {
	list, isList := wanted.([]string)
	if !isList {
		return reflect.DeepEqual(found, wanted)
	}
	text, err := json.Marshal(found)
	if err != nil {
		return false
	}
	var there []string
	if json.Unmarshal(text, &there) != nil {
		return false
	}
	slices.Sort(there)
	return slices.Equal(there, list)
}
