package operator_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	application "github.com/seed-9e1ffd66/trueup/cmd/application/operator"
)

// everything returns a line for each thing that there is: in PostgreSQL roles, memberships,
// settings, schemas, relations, functions, default privileges and comments, each with its
// rights; in S3 buckets with their settings and objects; in Keycloak realms, clients, users
// and providers; in Kubernetes all objects of all namespaces, without what controllers
// change by themselves. What is random has been replaced: UIDs, passwords, digests.
func (b *bench) everything() []string {
	b.Helper()
	lines := slices.Concat(b.inDatabase(), b.inStorage(), b.inRealms(), b.inCluster())
	for i, line := range lines {
		line = uuids.ReplaceAllString(line, "UID")
		line = randoms.ReplaceAllString(line, "RANDOM")
		lines[i] = scrams.ReplaceAllString(line, "SCRAM")
	}
	slices.Sort(lines)
	return lines
}

var (
	randoms = regexp.MustCompile(`\b([0-9a-f]{64}|[0-9a-f]{32})\b`)
	scrams  = regexp.MustCompile(`SCRAM-SHA-256\$\S+`)
)

// ofOthers returns the lines without a name, ofOurs those with it.
func ofOthers(lines []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return strings.Contains(line, name) })
}

func ofOurs(lines []string, name string) (ours []string) {
	for _, line := range lines {
		if strings.Contains(line, name) {
			ours = append(ours, strings.ReplaceAll(line, name, "WORLD"))
		}
	}
	slices.Sort(ours)
	return ours
}

func (b *bench) inDatabase() []string {
	b.Helper()
	const rights = `coalesce((SELECT array_agg(x::text ORDER BY x::text)::text FROM unnest(%s) x), '')`
	acl := func(column string) string { return fmt.Sprintf(rights, column) }
	const foreign = "::text !~ '^(pg_|information_schema)'"
	return b.rows(`
SELECT concat_ws(' ', 'sql role', rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication, rolbypassrls, rolconnlimit, rolvaliduntil, rolpassword) FROM pg_authid
UNION ALL SELECT concat_ws(' ', 'sql member', pg_get_userbyid(roleid), 'of', pg_get_userbyid(member), pg_get_userbyid(grantor), admin_option) FROM pg_auth_members
UNION ALL SELECT concat_ws(' ', 'sql setting', setdatabase, pg_get_userbyid(setrole), setconfig) FROM pg_db_role_setting
UNION ALL SELECT concat_ws(' ', 'sql database', datname, pg_get_userbyid(datdba), ` + acl("datacl") + `) FROM pg_database
UNION ALL SELECT concat_ws(' ', 'sql schema', nspname, pg_get_userbyid(nspowner), ` + acl("nspacl") + `) FROM pg_namespace WHERE nspname !~ '^pg_(temp|toast)'
UNION ALL SELECT concat_ws(' ', 'sql default', defaclnamespace::regnamespace, pg_get_userbyid(defaclrole), defaclobjtype, ` + acl("defaclacl") + `) FROM pg_default_acl
UNION ALL SELECT concat_ws(' ', 'sql relation', c.oid::regclass, relkind, pg_get_userbyid(relowner), ` + acl("relacl") + `) FROM pg_class c WHERE relnamespace::regnamespace` + foreign + `
UNION ALL SELECT concat_ws(' ', 'sql column', attrelid::regclass, attname, ` + acl("attacl") + `) FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid WHERE attnum > 0 AND relnamespace::regnamespace` + foreign + `
UNION ALL SELECT concat_ws(' ', 'sql function', p.oid::regprocedure, pg_get_userbyid(proowner), ` + acl("proacl") + `) FROM pg_proc p WHERE pronamespace::regnamespace` + foreign + `
UNION ALL SELECT concat_ws(' ', 'sql comment', pg_describe_object(classoid, objoid, 0), description) FROM pg_shdescription
UNION ALL SELECT concat_ws(' ', 'sql comment', pg_describe_object(classoid, objoid, objsubid), description) FROM pg_description WHERE objoid >= 16384`)
}

func (b *bench) inStorage() (lines []string) {
	b.Helper()
	ctx, people := b.Context(), b.people()
	all, err := people.ListBuckets(ctx, &s3.ListBucketsInput{})
	require.NoError(b, err)
	for _, found := range all.Buckets {
		line := "s3 bucket " + aws.ToString(found.Name)
		var tags []string
		if answer, err := people.GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: found.Name}); err == nil {
			for _, tag := range answer.TagSet {
				tags = append(tags, aws.ToString(tag.Key)+"="+aws.ToString(tag.Value))
			}
		}
		slices.Sort(tags)
		line += fmt.Sprint(" tags ", tags)
		if answer, err := people.GetBucketPolicy(ctx, &s3.GetBucketPolicyInput{Bucket: found.Name}); err == nil {
			line += " policy " + aws.ToString(answer.Policy)
		}
		if answer, err := people.GetBucketCors(ctx, &s3.GetBucketCorsInput{Bucket: found.Name}); err == nil {
			text, err := json.Marshal(answer.CORSRules)
			require.NoError(b, err)
			line += " CORS " + string(text)
		}
		if answer, err := people.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: found.Name}); err == nil {
			line += " versions " + string(answer.Status)
		}
		lines = append(lines, line)
		versions, err := people.ListObjectVersions(ctx, &s3.ListObjectVersionsInput{Bucket: found.Name})
		require.NoError(b, err)
		for _, v := range versions.Versions {
			lines = append(
				lines,
				fmt.Sprintf("s3 object %s/%s %s %s", aws.ToString(found.Name), aws.ToString(v.Key), aws.ToString(v.VersionId), aws.ToString(v.ETag)),
			)
		}
	}
	return lines
}

// keycloak sends a request to Keycloak as its administrator, and decodes the answer. The
// status is 0 where there is no Keycloak.
func (b *bench) keycloak(method, path string, body, answer any) int {
	b.Helper()
	at := b.realKeycloak
	if at == "" {
		at = b.settings.KeycloakURL
	}
	if at == "" {
		return 0
	}
	for {
		text, err := json.Marshal(body)
		require.NoError(b, err)
		request, err := http.NewRequestWithContext(b.Context(), method, at+"/admin/realms"+path, bytes.NewReader(text))
		require.NoError(b, err)
		request.Header.Set("Authorization", "Bearer "+*b.keycloakToken)
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		require.NoError(b, err)
		text, err = io.ReadAll(response.Body)
		require.NoError(b, err)
		require.NoError(b, response.Body.Close())
		if response.StatusCode == http.StatusUnauthorized {
			b.adminLogin(at)
			continue
		}
		if answer != nil && response.StatusCode == http.StatusOK {
			require.NoError(b, json.Unmarshal(text, answer), "%s", text)
		}
		return response.StatusCode
	}
}

func (b *bench) adminLogin(at string) {
	b.Helper()
	form := url.Values{
		"grant_type": {"password"},
		"client_id":  {"admin-cli"},
		"username":   {b.settings.KeycloakUser},
		"password":   {b.settings.KeycloakPassword},
	}
	request, err := http.NewRequestWithContext(
		b.Context(),
		http.MethodPost,
		at+"/realms/master/protocol/openid-connect/token",
		strings.NewReader(form.Encode()),
	)
	require.NoError(b, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := http.DefaultClient.Do(request)
	require.NoError(b, err)
	var token struct {
		Text string `json:"access_token"`
	}
	require.NoError(b, json.NewDecoder(response.Body).Decode(&token))
	require.NoError(b, response.Body.Close())
	require.NotEmpty(b, token.Text)
	*b.keycloakToken = token.Text
}

func (b *bench) inRealms() (lines []string) {
	b.Helper()
	line := func(kind string, parts ...any) {
		text, err := json.Marshal(sorted(parts))
		require.NoError(b, err)
		lines = append(lines, "keycloak "+kind+" "+string(text))
	}
	var realms []map[string]any
	if b.keycloak(http.MethodGet, "", nil, &realms) == 0 {
		return nil
	}
	for _, realm := range realms {
		name, _ := realm["realm"].(string)
		line("realm", name, realm)
		for _, kind := range []string{"clients", "users", "identity-provider/instances", "roles", "groups"} {
			var found []map[string]any
			require.Equal(b, http.StatusOK, b.keycloak(http.MethodGet, "/"+name+"/"+kind, nil, &found))
			for _, one := range found {
				delete(one, "secret") // random
				line(kind, name, one)
			}
		}
	}
	return lines
}

// sorted sorts all lists of texts, which Keycloak shows in any order.
func sorted(v any) any {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			sorted(one)
		}
		if !slices.ContainsFunc(v, func(one any) bool { _, text := one.(string); return !text }) {
			slices.SortFunc(v, func(x, y any) int { return strings.Compare(x.(string), y.(string)) })
		}
	case map[string]any:
		for _, one := range v {
			sorted(one)
		}
	}
	return v
}

// changing are the kinds that others than people and operators write.
var changing = []string{
	"events",
	"leases",
	"endpoints",
	"endpointslices",
	"ipaddresses",
	"pods",
	"nodes",
	"csinodes",
	"componentstatuses",
	"apiservices",
	"controllerrevisions",
	"podmetrics",
}

func (b *bench) inCluster() (lines []string) {
	b.Helper()
	client, err := dynamic.NewForConfig(b.cluster.Config)
	require.NoError(b, err)
	if *b.kinds == nil {
		found, err := discovery.NewDiscoveryClientForConfigOrDie(b.cluster.Config).ServerPreferredResources()
		require.NoError(b, err)
		for _, list := range found {
			group, err := schema.ParseGroupVersion(list.GroupVersion)
			require.NoError(b, err)
			for _, kind := range list.APIResources {
				if slices.Contains(kind.Verbs, "list") && !slices.Contains(changing, kind.Name) {
					*b.kinds = append(*b.kinds, group.WithResource(kind.Name))
				}
			}
		}
	}
	for _, kind := range *b.kinds {
		all, err := client.Resource(kind).List(b.Context(), metav1.ListOptions{})
		require.NoError(b, err)
		for _, o := range all.Items {
			text := b.plain(&o)
			lines = append(lines, "kubernetes "+kind.Resource+" "+o.GetNamespace()+"/"+o.GetName()+" "+text)
		}
	}
	return lines
}

// plain returns an object without what differs from one moment, and from one world, to the
// next.
func (b *bench) plain(o *unstructured.Unstructured) string {
	b.Helper()
	if o.GetKind() == "ReplicaSet" {
		o.SetName("") // it has a digest of the template
		return "of " + o.GetOwnerReferences()[0].Name
	}
	var managers []string
	for _, entry := range o.GetManagedFields() {
		if entry.Subresource == "" {
			managers = append(managers, entry.Manager)
		}
	}
	slices.Sort(managers)
	for _, field := range [][]string{
		{"metadata", "resourceVersion"},
		{"metadata", "managedFields"},
		{"metadata", "creationTimestamp"},
		{"metadata", "deletionTimestamp"},
		{"spec", "clusterIP"},
		{"spec", "clusterIPs"},
		{"metadata", "annotations", "deployment.kubernetes.io/revision"},
	} {
		unstructured.RemoveNestedField(o.Object, field...)
	}
	if o.GetKind() == "Secret" {
		data, _, err := unstructured.NestedStringMap(o.Object, "data")
		require.NoError(b, err)
		for key, value := range data {
			text, err := base64.StdEncoding.DecodeString(value)
			require.NoError(b, err)
			data[key] = string(text)
		}
		require.NoError(b, unstructured.SetNestedStringMap(o.Object, data, "data"))
	}
	if o.GetKind() == "Application" {
		conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
		require.NoError(b, err)
		slices.SortFunc(conditions, func(x, y any) int {
			return strings.Compare(fmt.Sprint(x.(map[string]any)["type"]), fmt.Sprint(y.(map[string]any)["type"]))
		})
		for _, c := range conditions {
			delete(c.(map[string]any), "lastTransitionTime")
		}
		require.NoError(b, unstructured.SetNestedSlice(o.Object, conditions, "status", "conditions"))
	} else {
		unstructured.RemoveNestedField(o.Object, "status")
	}
	text, err := json.Marshal(o.Object)
	require.NoError(b, err)
	return string(text) + fmt.Sprint(" managers ", slices.Compact(managers))
}

// strangers makes what others have, of each kind, and returns once it rests.
func (b *bench) strangers() {
	b.Helper()
	require.NoError(
		b,
		b.pg.SQL(
			b.Context(),
			"platform",
			`CREATE ROLE theirs LOGIN; CREATE SCHEMA theirs AUTHORIZATION theirs; CREATE TABLE theirs.kept (id serial, name text);
GRANT SELECT (name) ON theirs.kept TO PUBLIC; GRANT USAGE ON SCHEMA theirs TO operator; COMMENT ON SCHEMA theirs IS 'made by hand'; COMMENT ON ROLE theirs IS 'a person';
ALTER DEFAULT PRIVILEGES FOR ROLE theirs GRANT SELECT ON TABLES TO operator; CREATE FUNCTION theirs.f() RETURNS int LANGUAGE sql AS 'SELECT 1'`,
		),
	)
	bucket := aws.String("theirs")
	_, err := b.people().CreateBucket(b.Context(), &s3.CreateBucketInput{Bucket: bucket})
	require.NoError(b, err)
	_, err = b.people().
		PutBucketTagging(b.Context(), &s3.PutBucketTaggingInput{Bucket: bucket, Tagging: &types.Tagging{TagSet: []types.Tag{{Key: aws.String("cost"), Value: aws.String("42")}}}})
	require.NoError(b, err)
	_, err = b.people().
		PutBucketPolicy(b.Context(), &s3.PutBucketPolicyInput{Bucket: bucket, Policy: aws.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::theirs/*"}]}`)})
	require.NoError(b, err)
	_, err = b.people().PutObject(b.Context(), &s3.PutObjectInput{Bucket: bucket, Key: aws.String("kept"), Body: strings.NewReader("x")})
	require.NoError(b, err)
	if status := b.keycloak(
		http.MethodPost,
		"",
		map[string]any{"realm": "theirs", "enabled": true, "attributes": map[string]string{"note": "by hand"}},
		nil,
	); status != 0 {
		require.Equal(b, http.StatusCreated, status)
		require.Equal(
			b,
			http.StatusCreated,
			b.keycloak(http.MethodPost, "/theirs/users", map[string]any{"username": "ada", "enabled": true}, nil),
		)
	}
	_, err = b.cluster.Kubectl(b.Context(), "create", "namespace", "theirs")
	require.NoError(b, err)
	require.NoError(
		b,
		b.cluster.Apply(
			b.Context(),
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: kept, namespace: theirs, labels: {app.kubernetes.io/managed-by: plattr-operator}}, data: {a: b}}
---
{apiVersion: v1, kind: Secret, metadata: {name: kept-db, namespace: theirs}, stringData: {a: b}}
---
{apiVersion: v1, kind: Service, metadata: {name: kept, namespace: theirs}, spec: {ports: [{port: 80}]}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: kept, namespace: theirs}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}}}`,
		),
	)
	_, err = b.cluster.Kubectl(b.Context(), "rollout", "status", "deployment/kept", "-n", "theirs", "--timeout=120s")
	require.NoError(b, err)
	for before, n := b.everything(), 0; ; n++ {
		now := b.everything()
		if slices.Equal(now, before) {
			return
		}
		require.Less(b, n, 20, "it does not rest: %s", cmp.Diff(before, now))
		before = now
	}
}

// none is the name that no line has.
const none = "\x00"

// snapshot is everything at one time, and how much operators had sent before.
type snapshot struct {
	lines []string
	sent  int
}

func (b *bench) snapshot() snapshot {
	b.Helper()
	return snapshot{b.everything(), len(b.sent(b.T))}
}

// untouched requires that what others have is as it was, which is every line without the
// name, and that the operators have sent no write about any namespace but those named and
// their own.
func (b *bench) untouched(before snapshot, name string, namespaces ...string) {
	b.Helper()
	require.Empty(b, cmp.Diff(ofOthers(before.lines, name), ofOthers(b.everything(), name)), "what others have")
	for _, r := range b.sent(b.T)[before.sent:] {
		if slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, r.Verb) {
			require.Contains(b, append(namespaces, application.Namespace), r.Namespace, r.String())
		}
	}
}

// TestNothingForeignIsTouched is D18 and D19: each of the names that an application wants is
// taken by another, who keeps all of it when the application is refused and when it is
// deleted.
func TestNothingForeignIsTouched(t *testing.T) {
	if testing.Short() {
		t.Skip("long: it needs the S3 server")
	}
	t.Parallel()
	c := newWholeCell(t)
	b := c.bench(t, "foreign")
	b.strangers()
	c.start(t)
	const wants = ", imageRef: 'app:1', database: {enabled: true}, storage: {enabled: true, buckets: [{name: a}, {name: b, public: true}]}, auth: {enabled: true}"
	for condition, taken := range map[string]struct {
		name string
		take func()
	}{
		"DatabaseReady schema": {"schema", func() {
			require.NoError(b, b.pg.SQL(b.Context(), "platform", "CREATE SCHEMA prod_schema; CREATE TABLE prod_schema.kept (id int)"))
		}},
		"DatabaseReady role": {"role", func() {
			require.NoError(b, b.pg.SQL(b.Context(), "platform", "CREATE ROLE prod_role_app LOGIN PASSWORD 'theirs'"))
		}},
		"DatabaseReady anon": {"anon", func() {
			require.NoError(b, b.pg.SQL(b.Context(), "platform", "CREATE ROLE prod_anon_anon; COMMENT ON ROLE prod_anon_anon IS 'platform.internal cluster=x namespace=foreign name=anon uid=x'"))
		}},
		"StorageReady bucket": {"bucket", func() {
			_, err := b.people().CreateBucket(b.Context(), &s3.CreateBucketInput{Bucket: aws.String("plattr-prod-bucket-b")})
			require.NoError(b, err)
			_, err = b.people().PutObject(b.Context(), &s3.PutObjectInput{Bucket: aws.String("plattr-prod-bucket-b"), Key: aws.String("kept"), Body: strings.NewReader("x")})
			require.NoError(b, err)
		}},
		"AuthReady realm": {"realm", func() {
			require.Equal(b, http.StatusCreated, b.keycloak(http.MethodPost, "", map[string]any{"realm": "realm", "enabled": false}, nil))
			require.Equal(b, http.StatusCreated, b.keycloak(http.MethodPost, "/realm/clients", map[string]any{"clientId": "realm"}, nil))
		}},
		"DatabaseReady secret": {"secret", func() {
			b.in("create", "secret", "generic", "secret-db", "--from-literal=DB_PASSWORD=theirs")
		}},
	} {
		taken.take()
		before := b.snapshot()
		b.app(taken.name, wants)
		condition, _, _ = strings.Cut(condition, " ")
		b.eventually(taken.name+" is refused", func() bool { return b.condition(taken.name, condition, "reason") == "OwnedByOther" })
		b.in("delete", "app", taken.name, "--timeout=120s")
		b.untouched(before, none, "foreign") // nothing of ours is left either
	}

	b.app("twice", wants)
	b.phase("twice", "Running")
	before := b.snapshot()
	other := b.bench(b.T, "second")
	other.app("twice", wants)
	other.phase("twice", "Failed")
	for _, condition := range []string{"DatabaseReady", "StorageReady", "AuthReady"} {
		require.Equal(b, "OwnedByOther", other.condition("twice", condition, "reason"))
		message := other.condition("twice", condition, "message")
		if condition == "AuthReady" {
			require.NotContains(b, message, "foreign", "whose a realm is, is nothing for strangers")
			require.Contains(b, message, "spec.auth.sharedWith")
			continue
		}
		require.Contains(b, message, "foreign/twice")
	}
	other.in("delete", "app", "twice", "--timeout=120s")
	b.untouched(before, "second", "foreign", "second")
	conn, err := b.login("twice")
	require.NoError(b, err)
	require.NoError(b, conn.Close(context.WithoutCancel(b.Context())))
	fmt.Println("figure application_foreign_touched 0")
}
