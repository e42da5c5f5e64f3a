package operator

import (
	"strconv"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/database"
	"github.com/seed-9e1ffd66/trueup/cmd/application/names"
)

// Ports of the containers.
const (
	appPort       = 3000
	postgrestPort = 3001
)

// keyPostgREST is the key of the Secret with the URL that libpq takes.
const keyPostgREST = "POSTGREST_DB_URI"

// databaseVariables are the data of the Secret of the database.
func databaseVariables(app *v1alpha1.Application, server databases, want database.Want) map[string]string {
	host, _, name := server.Address()
	data := map[string]string{
		"DATABASE_URL": server.URL(want), keyPostgREST: server.PostgRESTURL(want), "DB_HOST": host, "DB_NAME": name,
		"DB_USER": want.App, "DB_PASSWORD": want.Password, "DB_SCHEMA": want.Schema, "DB_MIGRATIONS_PATH": app.Spec.Database.Migrations.Path,
	}
	if engine := app.Spec.Database.Migrations.Engine; engine != "" {
		data["DB_MIGRATIONS_ENGINE"] = string(engine)
	}
	return data
}

// postgrestVariables returns the variables that give the app's container the address of
// PostgREST.
func postgrestVariables(hostName string) map[string]string {
	return map[string]string{
		"POSTGREST_URL": "https://" + hostName + "/api/rest", "POSTGREST_INTERNAL_URL": "http://localhost:" + strconv.Itoa(postgrestPort),
	}
}

// storageVariables are the data of the ConfigMap of the buckets.
func (s Settings) storageVariables(app *v1alpha1.Application, n names.App) map[string]string {
	data := map[string]string{"S3_REGION": s.S3Region}
	if s.S3Endpoint != "" {
		data["S3_ENDPOINT"] = s.S3Endpoint
	}
	for _, bucket := range app.Spec.Storage.Buckets {
		variable := names.BucketVariable(bucket.Name)
		data["S3_BUCKET_"+variable] = n.Bucket(bucket.Name)
		if size := bytesOf(bucket.MaxFileSize); size > 0 {
			data["S3_MAX_FILE_SIZE_"+variable] = strconv.FormatInt(size, 10)
		}
	}
	return data
}

// authVariables are the data of the ConfigMap of the realm.
func (s Settings) authVariables(n names.App) map[string]string {
	return map[string]string{"AUTH_ISSUER_URL": "https://auth." + s.BaseDomain + "/realms/" + n.Realm(), "AUTH_CLIENT_ID": n.Client()}
}

// redisVariables are the data of the ConfigMap of Redis.
func (s Settings) redisVariables() map[string]string {
	return map[string]string{"REDIS_URL": "redis://" + s.Redis + ":6379", "REDIS_HOST": s.Redis, "REDIS_PORT": "6379"}
}

// searchVariables are the data of the ConfigMap of OpenSearch.
func (s Settings) searchVariables(n names.App) map[string]string {
	return map[string]string{"OPENSEARCH_URL": "https://" + s.OpenSearch + ":443", "OPENSEARCH_INDEX_PREFIX": n.DatabaseSchema() + "_"}
}

// bytesOf returns the number of bytes that a text such as 10MB or 512Ki means, 0 for any
// other text. The API server takes no other but the empty one.
func bytesOf(text string) int64 {
	text = strings.TrimSuffix(text, "B")
	digits := strings.TrimRight(text, "kKMGTi")
	n, err := strconv.ParseInt(digits, 10, 64)
	unit, known := map[string]int64{"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}[text[len(digits):]]
	if err != nil || !known || n < 0 || n > (1<<63-1)/unit {
		return 0
	}
	return n * unit
}
