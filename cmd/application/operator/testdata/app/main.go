// Command app is an app of tests, and what stands in for PostgREST beside it. It uses what the
// operator gives it, and no other setting.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/jackc/pgx/v5"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == "migrate" {
		if err := migrate(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	handler, port := http.NewServeMux(), "3000"
	if len(os.Args) > 1 && os.Args[1] == "fail" {
		fmt.Fprintln(os.Stderr, "the configuration is wrong")
		os.Exit(1)
	}
	if len(os.Args) > 1 && os.Args[1] == "rest" {
		port = os.Getenv("PGRST_SERVER_PORT")
		handler.HandleFunc("/notes", answer(readAsAnon))
	} else {
		handler.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
		handler.HandleFunc("/check", answer(check))
	}
	server := &http.Server{Addr: ":" + port, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Shutdown(context.Background())
	}()
	fmt.Println("listens on", port)
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// answer writes what do returns as JSON.
func answer(do func(*http.Request) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { _ = json.NewEncoder(w).Encode(do(r)) }
}

// check uses each service. Of each it returns an error, or what it has got.
func check(r *http.Request) any {
	seen := map[string]string{"variables": os.Getenv("GREETING")}
	for _, service := range []struct {
		name string
		use  func(*http.Request) (string, error)
	}{{"database", writeNote}, {"rest", readRest}, {"storage", upload}, {"login", whoIs}, {"root", writeRoot}} {
		got, err := service.use(r)
		if err != nil {
			got = "error: " + err.Error()
		}
		seen[service.name] = got
	}
	return seen
}

// migrate makes a table, and fails if it was made before.
func migrate(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "CREATE TABLE notes (text text)")
	return err
}

// writeNote writes a row, and returns how many there are, and who wrote it where.
func writeNote(r *http.Request) (string, error) {
	conn, err := pgx.Connect(r.Context(), os.Getenv("DATABASE_URL"))
	if err != nil {
		return "", err
	}
	defer conn.Close(r.Context())
	var who string
	_, err = conn.Exec(r.Context(), "CREATE TABLE IF NOT EXISTS notes (text text); INSERT INTO notes VALUES ('hello')")
	if err == nil {
		err = conn.QueryRow(r.Context(), "SELECT current_user || ' in ' || current_schema() || ': ' || (SELECT count(*) FROM notes)").Scan(&who)
	}
	return who, err
}

// readRest reads what PostgREST answers.
func readRest(r *http.Request) (string, error) {
	return fetch(r, os.Getenv("POSTGREST_INTERNAL_URL")+"/notes", "")
}

// upload writes an object and reads it again.
func upload(r *http.Request) (string, error) {
	client := s3.New(s3.Options{
		Region: os.Getenv("S3_REGION"), BaseEndpoint: aws.String(os.Getenv("S3_ENDPOINT")), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), ""),
	})
	bucket := aws.String(os.Getenv("S3_BUCKET_FILES"))
	object := &s3.PutObjectInput{Bucket: bucket, Key: aws.String("a"), Body: strings.NewReader("hello")}
	if _, err := client.PutObject(r.Context(), object); err != nil {
		return "", err
	}
	head, err := client.HeadObject(r.Context(), &s3.HeadObjectInput{Bucket: bucket, Key: aws.String("a")})
	if err != nil {
		return "", err
	}
	return fmt.Sprint(aws.ToInt64(head.ContentLength), " bytes in ", *bucket), nil
}

// whoIs asks the issuer whose token the request has.
func whoIs(r *http.Request) (string, error) {
	issuer := os.Getenv("AUTH_ISSUER_URL")
	text, err := fetch(r, issuer+"/.well-known/openid-configuration", "")
	if err != nil {
		return "", err
	}
	var found struct {
		Issuer string
		Users  string `json:"userinfo_endpoint"`
	}
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		return "", err
	}
	if found.Issuer != issuer {
		return "", fmt.Errorf("the issuer is %s, not %s", found.Issuer, issuer)
	}
	if text, err = fetch(r, found.Users, r.Header.Get("Authorization")); err != nil {
		return "", err
	}
	var user struct {
		Name string `json:"preferred_username"`
	}
	err = json.Unmarshal([]byte(text), &user)
	return user.Name, err
}

// writeRoot returns who runs this, and whether it may write beside its own files.
func writeRoot(*http.Request) (string, error) {
	_, err := os.Create("/etc/mine")
	return fmt.Sprint("user ", os.Getuid(), ", may write to /etc: ", err == nil), nil
}

func fetch(r *http.Request, url, authorization string) (string, error) {
	request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, text)
	}
	return string(text), err
}

// readAsAnon answers as PostgREST does for a table: what the anonymous role may read.
func readAsAnon(r *http.Request) any {
	conn, err := pgx.Connect(r.Context(), os.Getenv("PGRST_DB_URI"))
	if err != nil {
		return err.Error()
	}
	defer conn.Close(r.Context())
	table := pgx.Identifier{os.Getenv("PGRST_DB_SCHEMAS"), "notes"}.Sanitize()
	if _, err = conn.Exec(r.Context(), "SET ROLE "+pgx.Identifier{os.Getenv("PGRST_DB_ANON_ROLE")}.Sanitize()); err != nil {
		return err.Error()
	}
	rows, err := conn.Query(r.Context(), "SELECT text FROM "+table)
	if err != nil {
		return err.Error()
	}
	notes, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err.Error()
	}
	if _, err = conn.Exec(r.Context(), "INSERT INTO "+table+" VALUES ('anon')"); err == nil {
		return "the anonymous role may write"
	}
	return notes
}
