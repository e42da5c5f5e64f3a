package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/jackc/pgx/v5"

	"github.com/seed-9e1ffd66/trueup/internal/test/keycloaktest"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/s3test"
)

// outside is what applications have outside of the cluster: real services, with counters
// before those that speak HTTP.
type outside struct {
	pg       *pgtest.Server
	s3       *s3test.Server
	keycloak *keycloaktest.Server

	toS3, toKeycloak *counter
	people           *s3.Client
}

// startServices is the stage that starts the services, and makes objects of others in them.
func (a *applications) startServices(ctx context.Context) (_ string, err error) {
	o := &a.outside
	// A statement that writes takes a number of a transaction; nothing else does without
	// the autovacuum.
	if o.pg, err = pgtest.Run(ctx, pgtest.Options{Passwords: true, Settings: []string{"autovacuum=off"}}); err != nil {
		return "", err
	}
	a.demo.atEnd(o.pg.Stop)
	if o.s3, err = s3test.Run(ctx); err != nil {
		return "", err
	}
	a.demo.atEnd(o.s3.Stop)
	a.demo.display.progress("Keycloak")
	if o.keycloak, err = keycloaktest.Run(ctx); err != nil {
		return "", err
	}
	a.demo.atEnd(o.keycloak.Stop)
	if o.toS3, err = a.demo.counter(ctx, o.s3.URL); err != nil {
		return "", err
	}
	if o.toKeycloak, err = a.demo.counter(ctx, o.keycloak.URL); err != nil {
		return "", err
	}
	o.people = s3.New(s3.Options{
		Region: s3test.Region, BaseEndpoint: aws.String(o.s3.URL), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(s3test.AccessKey, s3test.SecretKey, ""),
	})
	if err := o.others(ctx); err != nil {
		return "", err
	}
	a.before, err = o.objects(ctx)
	return fmt.Sprintf("they answer, with %d schemas, tables, roles, buckets and realms of others", len(a.before)), err
}

// others makes the operator's login and database, and objects of others.
func (o *outside) others(ctx context.Context) error {
	if err := o.pg.SQL(ctx, "postgres", "CREATE DATABASE platform"); err != nil {
		return err
	}
	if err := o.pg.SQL(ctx, "platform", `CREATE ROLE operator LOGIN CREATEROLE PASSWORD 'adm1n';
		GRANT CREATE ON DATABASE platform TO operator; CREATE SCHEMA theirs; CREATE TABLE theirs.kept (id int);
		CREATE ROLE their_app LOGIN; GRANT USAGE ON SCHEMA theirs TO their_app`); err != nil {
		return err
	}
	bucket := aws.String("plattr-prod-theirs-uploads")
	if _, err := o.people.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: bucket}); err != nil {
		return err
	}
	object := &s3.PutObjectInput{Bucket: bucket, Key: aws.String("kept"), Body: strings.NewReader("x")}
	if _, err := o.people.PutObject(ctx, object); err != nil {
		return err
	}
	return o.admin(ctx, http.MethodPost, `{"realm": "theirs", "enabled": true}`, nil)
}

// env is the operator's environment.
func (o *outside) env() []string {
	return []string{
		fmt.Sprintf("DB_ADMIN_URL=postgresql://operator:adm1n@127.0.0.1:%d/platform", o.pg.Port),
		"AWS_ENDPOINT_URL=" + o.toS3.url, "S3_REGION=" + s3test.Region,
		"AWS_ACCESS_KEY_ID=" + s3test.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s3test.SecretKey,
		"KEYCLOAK_ADMIN_URL=" + o.toKeycloak.url,
		"KEYCLOAK_ADMIN_USER=" + keycloaktest.User, "KEYCLOAK_ADMIN_PASSWORD=" + keycloaktest.Password,
	}
}

// superuser is the URL of the database for its superuser.
func (o *outside) superuser() string {
	return strings.Replace(o.pg.URL("platform"), "trueup@", "postgres@", 1)
}

// rows returns the only column of a query.
func rows(ctx context.Context, database, query string) ([]string, error) {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it was read
	found, err := conn.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, pgx.RowTo[string])
}

// objects describes each schema, table, role, bucket and realm: its kind, its name, and what
// may have been changed.
func (o *outside) objects(ctx context.Context) ([]string, error) {
	all, err := rows(ctx, o.superuser(), `SELECT concat_ws(' ', 'schema', nspname, nspacl, obj_description(oid, 'pg_namespace'))
			FROM pg_namespace WHERE nspname NOT LIKE 'pg\_%'
		UNION ALL SELECT concat_ws(' ', 'table', relname, relacl) FROM pg_class WHERE relkind = 'r' AND relowner::regrole::text <> 'postgres'
			OR relnamespace::regnamespace::text = 'theirs'
		UNION ALL SELECT concat_ws(' ', 'role', rolname, rolcanlogin, rolcreaterole) FROM pg_roles WHERE rolname NOT LIKE 'pg\_%'`)
	if err != nil {
		return nil, err
	}
	buckets, err := o.people.ListBuckets(ctx, &s3.ListBucketsInput{})
	if err != nil {
		return nil, err
	}
	for _, b := range buckets.Buckets {
		objects, err := o.people.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: b.Name})
		if err != nil {
			return nil, err
		}
		all = append(all, fmt.Sprint("bucket ", *b.Name, " ", len(objects.Contents)))
	}
	var realms []map[string]any
	if err := o.admin(ctx, http.MethodGet, "", &realms); err != nil {
		return nil, err
	}
	for _, r := range realms {
		text, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		all = append(all, fmt.Sprint("realm ", r["realm"], " ", string(text)))
	}
	return all, nil
}

// admin sends a request about realms to Keycloak as its administrator.
func (o *outside) admin(ctx context.Context, method, body string, into any) error {
	form := url.Values{
		"grant_type": {"password"}, "client_id": {"admin-cli"}, "username": {keycloaktest.User}, "password": {keycloaktest.Password},
	}
	var token struct {
		Access string `json:"access_token"`
	}
	at, kind := o.keycloak.URL+"/realms/master/protocol/openid-connect/token", "application/x-www-form-urlencoded"
	if err := send(ctx, http.MethodPost, at, "", kind, form.Encode(), &token); err != nil {
		return err
	}
	return send(ctx, method, o.keycloak.URL+"/admin/realms", "Bearer "+token.Access, "application/json", body, into)
}

// usable creates a table with the login of an app, and asks its realm for its settings.
func (o *outside) usable(ctx context.Context, login, realm string) error {
	_, err := rows(ctx, login, "CREATE TABLE things (id int)")
	settings := o.keycloak.URL + "/realms/" + realm + "/.well-known/openid-configuration"
	return errors.Join(err, send(ctx, http.MethodGet, settings, "", "", "", nil))
}

// writes returns the number of writes to PostgreSQL, S3 and Keycloak so far.
func (o *outside) writes(ctx context.Context) (n [3]int, err error) {
	found, err := rows(ctx, o.superuser(), "SELECT txid_snapshot_xmax(txid_current_snapshot())::text")
	if err != nil {
		return n, err
	}
	n[1], n[2] = int(o.toS3.writes.Load()), int(o.toKeycloak.writes.Load())
	n[0], err = strconv.Atoi(found[0])
	return n, err
}
