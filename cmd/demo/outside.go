package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/jackc/pgx/v5"

	"github.com/seed-9e1ffd66/trueup/internal/test/keycloaktest"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/s3test"
)

// count is the number of reads and writes of a service.
type count struct{ reads, writes int }

// outside is what applications have outside of the cluster: real services, with counters
// before those that speak HTTP.
type outside struct {
	pg       *pgtest.Server
	s3       *s3test.Server
	keycloak *keycloaktest.Server

	toS3, toKeycloak *counter
	people           *s3.Client
}

// start starts the services.
func (o *outside) start(ctx context.Context) (err error) {
	// A statement that writes takes a number of a transaction; nothing else does without
	// the autovacuum.
	if o.pg, err = pgtest.Run(ctx, pgtest.Options{Passwords: true, Settings: []string{"autovacuum=off"}}); err != nil {
		return err
	}
	if o.s3, err = s3test.Run(ctx); err != nil {
		return err
	}
	if o.keycloak, err = keycloaktest.Run(ctx); err != nil {
		return err
	}
	if o.toS3, err = newCounter(ctx, o.s3.URL); err != nil {
		return err
	}
	if o.toKeycloak, err = newCounter(ctx, o.keycloak.URL); err != nil {
		return err
	}
	o.people = s3.New(s3.Options{
		Region:       s3test.Region,
		BaseEndpoint: aws.String(o.s3.URL),
		UsePathStyle: true,
		Credentials:  credentials.NewStaticCredentialsProvider(s3test.AccessKey, s3test.SecretKey, ""),
	})
	return errors.Join(
		o.pg.SQL(ctx, "postgres", "CREATE DATABASE platform"),
		o.pg.SQL(ctx, "platform", "CREATE ROLE operator LOGIN CREATEROLE PASSWORD 'adm1n'; GRANT CREATE ON DATABASE platform TO operator"))
}

func (o *outside) stop() {
	for _, c := range []*counter{o.toS3, o.toKeycloak} {
		if c != nil {
			c.server.Close() //nolint:errcheck,gosec // at the end
		}
	}
	if o.keycloak != nil {
		o.keycloak.Stop()
	}
	if o.s3 != nil {
		o.s3.Stop()
	}
	if o.pg != nil {
		o.pg.Stop()
	}
}

// env are the operator's variables.
func (o *outside) env() []string {
	return []string{
		fmt.Sprintf("DB_ADMIN_URL=postgresql://operator:adm1n@127.0.0.1:%d/platform", o.pg.Port),
		"AWS_ENDPOINT_URL=" + o.toS3.url,
		"S3_REGION=" + s3test.Region,
		"AWS_ACCESS_KEY_ID=" + s3test.AccessKey,
		"AWS_SECRET_ACCESS_KEY=" + s3test.SecretKey,
		"KEYCLOAK_ADMIN_URL=" + o.toKeycloak.url,
		"KEYCLOAK_ADMIN_USER=" + keycloaktest.User,
		"KEYCLOAK_ADMIN_PASSWORD=" + keycloaktest.Password,
	}
}

// strangers makes things of others, some of which have names that an app would want.
func (o *outside) strangers(ctx context.Context) error {
	err := o.pg.SQL(ctx, "platform", `CREATE SCHEMA theirs; CREATE TABLE theirs.kept (id int); INSERT INTO theirs.kept VALUES (1);
		CREATE ROLE their_app LOGIN; GRANT USAGE ON SCHEMA theirs TO their_app; COMMENT ON SCHEMA theirs IS 'of another team'`)
	if err != nil {
		return err
	}
	if _, err := o.people.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String("plattr-prod-theirs-uploads")}); err != nil {
		return err
	}
	if _, err := o.people.PutObject(
		ctx,
		&s3.PutObjectInput{Bucket: aws.String("plattr-prod-theirs-uploads"), Key: aws.String("kept"), Body: strings.NewReader("x")},
	); err != nil {
		return err
	}
	return o.admin(ctx, http.MethodPost, "", map[string]any{"realm": "theirs", "enabled": true}, nil)
}

// rows returns what a query of the superuser returns, a line each.
func (o *outside) rows(ctx context.Context, query string, args ...any) ([]string, error) {
	conn, err := pgx.Connect(ctx, strings.Replace(o.pg.URL("platform"), "trueup@", "postgres@", 1))
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it was read
	found, err := conn.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, pgx.RowTo[string])
}

const mark = "platform.internal %"

// foreign describes all that has no mark of the operator.
func (o *outside) foreign(ctx context.Context) ([]string, error) {
	all, err := o.rows(
		ctx,
		`SELECT 'schema ' || nspname || ' ' || coalesce(nspacl::text, '') || ' ' || coalesce(obj_description(oid, 'pg_namespace'), '') FROM pg_namespace
			WHERE coalesce(obj_description(oid, 'pg_namespace'), '') NOT LIKE $1 AND nspname NOT LIKE 'pg\_%'
		UNION ALL SELECT 'table ' || relname || ' ' || coalesce(relacl::text, '') FROM pg_class WHERE relnamespace::regnamespace::text = 'theirs'
		UNION ALL SELECT 'role ' || rolname || ' ' || rolcanlogin || ' ' || rolcreaterole FROM pg_roles
			WHERE coalesce(shobj_description(oid, 'pg_authid'), '') NOT LIKE $1 AND rolname NOT LIKE 'pg\_%' ORDER BY 1`,
		mark,
	)
	if err != nil {
		return nil, err
	}
	buckets, err := o.people.ListBuckets(ctx, &s3.ListBucketsInput{})
	if err != nil {
		return nil, err
	}
	for _, b := range buckets.Buckets {
		tags, err := o.people.GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: b.Name})
		if err == nil && len(tags.TagSet) > 0 {
			continue
		}
		objects, err := o.people.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: b.Name})
		if err != nil {
			return nil, err
		}
		all = append(all, fmt.Sprint("bucket ", *b.Name, " ", len(objects.Contents)))
	}
	realms, err := o.realms(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range realms {
		if !strings.Contains(fmt.Sprint(r["attributes"]), "platform.internal/owner") {
			text, err := json.Marshal(r)
			if err != nil {
				return nil, err
			}
			all = append(all, "realm "+string(text))
		}
	}
	return all, nil
}

// left names what has a mark of the operator, and a name like this.
func (o *outside) left(ctx context.Context, like string) ([]string, error) {
	all, err := o.rows(
		ctx,
		`SELECT 'schema ' || nspname FROM pg_namespace WHERE obj_description(oid, 'pg_namespace') LIKE $1 AND nspname LIKE $2
		UNION ALL SELECT 'role ' || rolname FROM pg_roles WHERE shobj_description(oid, 'pg_authid') LIKE $1 AND rolname LIKE $2 || '\_%'`,
		mark,
		like,
	)
	if err != nil {
		return nil, err
	}
	buckets, err := o.people.ListBuckets(ctx, &s3.ListBucketsInput{})
	if err != nil {
		return nil, err
	}
	for _, b := range buckets.Buckets {
		if strings.HasPrefix(*b.Name, "plattr-") && *b.Name != "plattr-prod-theirs-uploads" &&
			(like == "%" || strings.HasPrefix(*b.Name, "plattr-preview-")) {
			all = append(all, "bucket "+*b.Name)
		}
	}
	if like != "%" {
		return all, nil // a copy shares the realm
	}
	realms, err := o.realms(ctx)
	for _, r := range realms {
		if name := fmt.Sprint(r["realm"]); name != "master" && name != "theirs" {
			all = append(all, "realm "+name)
		}
	}
	return all, err
}

// usable logs in as the app of the demo, reads its public bucket as anybody, and asks its
// realm for its settings.
func (o *outside) usable(ctx context.Context, kubectl func(context.Context, ...string) (string, error)) error {
	login, err := kubectl(ctx, "get", "secret", "shop-db", "-n", "team", "-o", "go-template={{.data.DATABASE_URL | base64decode}}")
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, login)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it was used
	if _, err := conn.Exec(ctx, "CREATE TABLE things (id int)"); err != nil {
		return err
	}
	if _, err := o.people.PutObject(
		ctx,
		&s3.PutObjectInput{Bucket: aws.String("plattr-prod-shop-assets"), Key: aws.String("a"), Body: strings.NewReader("x")},
	); err != nil {
		return err
	}
	for _, at := range []string{o.s3.URL + "/plattr-prod-shop-assets/a", o.keycloak.URL + "/realms/shop/.well-known/openid-configuration"} {
		if status, err := status(ctx, at); err != nil || status != http.StatusOK {
			return fmt.Errorf("%s answers %d: %w", at, status, err)
		}
	}
	return nil
}

func status(ctx context.Context, at string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

const shopClient = "/shop/clients?clientId=shop"

// damage revokes a grant, removes the policy of the public bucket, and adds a redirect.
func (o *outside) damage(ctx context.Context) error {
	if err := o.pg.SQL(ctx, "platform", "REVOKE USAGE ON SCHEMA prod_shop FROM prod_shop_anon"); err != nil {
		return err
	}
	if _, err := o.people.DeleteBucketPolicy(ctx, &s3.DeleteBucketPolicyInput{Bucket: aws.String("plattr-prod-shop-assets")}); err != nil {
		return err
	}
	var clients []map[string]any
	if err := o.admin(ctx, http.MethodGet, shopClient, nil, &clients); err != nil || len(clients) != 1 {
		return fmt.Errorf("%d clients: %w", len(clients), err)
	}
	clients[0]["redirectUris"] = []string{"https://evil.example.com/*"}
	return o.admin(ctx, http.MethodPut, "/shop/clients/"+fmt.Sprint(clients[0]["id"]), clients[0], nil)
}

// repaired reports whether all of that is right again.
func (o *outside) repaired(ctx context.Context) (bool, error) {
	granted, err := o.rows(ctx, "SELECT has_schema_privilege('prod_shop_anon', 'prod_shop', 'USAGE')::text")
	if err != nil || granted[0] != "true" {
		return false, err
	}
	if status, err := status(ctx, o.s3.URL+"/plattr-prod-shop-assets/a"); err != nil || status != http.StatusOK {
		return false, err
	}
	var clients []map[string]any
	err = o.admin(ctx, http.MethodGet, shopClient, nil, &clients)
	return err == nil && len(clients) == 1 && !strings.Contains(fmt.Sprint(clients[0]["redirectUris"]), "evil"), err
}

func (o *outside) realms(ctx context.Context) ([]map[string]any, error) {
	var all []map[string]any
	err := o.admin(ctx, http.MethodGet, "", nil, &all)
	return all, err
}

// admin asks Keycloak as its administrator.
func (o *outside) admin(ctx context.Context, method, path string, body, into any) error {
	form := url.Values{
		"grant_type": {"password"},
		"client_id":  {"admin-cli"},
		"username":   {keycloaktest.User},
		"password":   {keycloaktest.Password},
	}
	var token struct {
		Access string `json:"access_token"`
	}
	if err := send(
		ctx,
		http.MethodPost,
		o.keycloak.URL+"/realms/master/protocol/openid-connect/token",
		"",
		"application/x-www-form-urlencoded",
		strings.NewReader(form.Encode()),
		&token,
	); err != nil {
		return err
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return send(ctx, method, o.keycloak.URL+"/admin/realms"+path, token.Access, "application/json", bytes.NewReader(text), into)
}

func send(ctx context.Context, method, at, token, kind string, body io.Reader, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, at, body)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", kind)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s", method, at, answer.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

// counts returns the reads and writes of each service.
func (o *outside) counts(ctx context.Context) (map[string]count, error) {
	found, err := o.rows(
		ctx,
		`SELECT txid_snapshot_xmax(txid_current_snapshot())::text UNION ALL SELECT xact_commit::text FROM pg_stat_database WHERE datname = 'platform'`,
	)
	if err != nil {
		return nil, err
	}
	var sql count
	if _, err := fmt.Sscan(found[0], &sql.writes); err != nil {
		return nil, err
	}
	if _, err := fmt.Sscan(found[1], &sql.reads); err != nil {
		return nil, err
	}
	return map[string]count{"PostgreSQL": sql, "S3": o.toS3.count(), "Keycloak": o.toKeycloak.count()}, nil
}
