package storage_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/storage"
	"github.com/seed-9e1ffd66/trueup/internal/test/s3test"
)

// bench is a service of S3 with one client of the operator's and one of people.
type bench struct {
	*testing.T

	s3     *s3test.Server
	people *s3.Client
}

func (b *bench) open(key string, carrier aws.HTTPClient) *storage.Server {
	b.Helper()
	s, err := storage.Open(b.Context(), storage.Options{
		Endpoint:    b.s3.URL,
		Region:      s3test.Region,
		HTTP:        carrier,
		Timeout:     2 * time.Minute, // of a thousand deletions on a disk that other tests use
		Credentials: credentials.NewStaticCredentialsProvider(s3test.AccessKey, key, ""),
	})
	require.NoError(b, err)
	return s
}

// TestBuckets runs everything on one service.
func TestBuckets(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	people := s3.New(s3.Options{
		Region:       s3test.Region,
		BaseEndpoint: aws.String(server.URL),
		UsePathStyle: true,
		Credentials:  credentials.NewStaticCredentialsProvider(s3test.AccessKey, s3test.SecretKey, ""),
	})
	for name, test := range map[string]func(*bench){
		"made": made, "drift": drifts, "foreign": foreign, "big": big, "retain": retains, "crash": crashes, "nocors": noCORS, "denied": denied,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&bench{T: t, s3: server, people: people})
		})
	}
}

func want(name string) storage.Want {
	return storage.Want{
		Name: "plattr-prod-" + name, Public: true, Origins: []string{"https://b.example.com", "https://a.example.com"},
		Mark: external.Mark{Cluster: "c", Namespace: "team", Name: name, UID: "uid-" + name},
	}
}

// wire counts writes, and ends at one of them.
type wire struct {
	mu     sync.Mutex
	writes []string
	crash  int
	after  bool
	dead   bool
	refuse string // a query that the service does not know
}

var errDead = errors.New("the program has ended")

func (w *wire) Do(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return nil, errDead
	}
	if w.refuse != "" && r.URL.Query().Has(w.refuse) {
		return &http.Response{
			StatusCode: http.StatusNotImplemented,
			Request:    r,
			Body:       io.NopCloser(strings.NewReader("<Error><Code>NotImplemented</Code></Error>")),
			Header:     http.Header{},
		}, nil
	}
	writes := r.Method != http.MethodGet && r.Method != http.MethodHead
	if writes {
		w.writes = append(w.writes, r.Method+" "+r.URL.RequestURI())
		if len(w.writes) == w.crash && !w.after {
			w.dead = true
			return nil, errDead
		}
	}
	answer, err := http.DefaultClient.Do(r)
	if writes && len(w.writes) == w.crash {
		w.dead = true
		if err == nil {
			err = errors.Join(errDead, answer.Body.Close())
		}
		return nil, err
	}
	return answer, err
}

func (b *bench) put(bucket, key, body string) {
	b.Helper()
	_, err := b.people.PutObject(b.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader(body)})
	require.NoError(b, err)
}

// anonymous returns the status of a request without credentials.
func (b *bench) anonymous(path string) int {
	b.Helper()
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, b.s3.URL+"/"+path, http.NoBody)
	require.NoError(b, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(b, err)
	require.NoError(b, answer.Body.Close())
	return answer.StatusCode
}

func (b *bench) exists(bucket string) bool {
	b.Helper()
	all, err := b.people.ListBuckets(b.Context(), &s3.ListBucketsInput{})
	require.NoError(b, err)
	return slices.ContainsFunc(all.Buckets, func(found types.Bucket) bool { return aws.ToString(found.Name) == bucket })
}

// made is the part of D1 that is about buckets: a public one can be read by anyone, a
// private one cannot, and a second pass writes nothing.
func made(b *bench) {
	carrier := &wire{}
	s, public, private := b.open(s3test.SecretKey, carrier), want("public"), want("private")
	private.Public, private.Origins = false, nil
	for _, w := range []storage.Want{public, private} {
		result, err := s.Apply(b.Context(), w)
		require.NoError(b, err)
		require.NotEmpty(b, result.Done)
		b.put(w.Name, "a.txt", "hello")
		carrier.writes = nil
		result, err = s.Apply(b.Context(), w)
		require.NoError(b, err)
		require.Empty(b, result.Done)
		require.Empty(b, carrier.writes)
	}
	require.Equal(b, http.StatusOK, b.anonymous(public.Name+"/a.txt"))
	require.Equal(b, http.StatusForbidden, b.anonymous(private.Name+"/a.txt"))
	cors, err := b.people.GetBucketCors(b.Context(), &s3.GetBucketCorsInput{Bucket: &public.Name})
	require.NoError(b, err)
	require.Equal(b, []string{"https://a.example.com", "https://b.example.com"}, cors.CORSRules[0].AllowedOrigins)
	public.Public = false // and back
	result, err := s.Apply(b.Context(), public)
	require.NoError(b, err)
	require.Equal(b, []string{"delete the policy " + public.Name}, result.Done)
	require.Equal(b, http.StatusForbidden, b.anonymous(public.Name+"/a.txt"))
}

// drifts is C4 and D7 for buckets.
func drifts(b *bench) {
	s, w := b.open(s3test.SecretKey, nil), want("drift")
	_, err := s.Apply(b.Context(), w)
	require.NoError(b, err)
	_, err = b.people.PutBucketTagging(b.Context(), &s3.PutBucketTaggingInput{Bucket: &w.Name, Tagging: &types.Tagging{TagSet: []types.Tag{
		{Key: aws.String("platform.internal/owner"), Value: aws.String(w.Mark.String())}, {Key: aws.String("cost"), Value: aws.String("42")},
	}}})
	require.NoError(b, err)
	good, err := s.Observe(b.Context(), w)
	require.NoError(b, err)
	require.Equal(b, map[string]string{"cost": "42"}, good.Tags)
	for what, change := range map[string]func() error{
		"no policy": func() error {
			_, err := b.people.DeleteBucketPolicy(b.Context(), &s3.DeleteBucketPolicyInput{Bucket: &w.Name})
			return err
		},
		"another policy": func() error {
			_, err := b.people.PutBucketPolicy(b.Context(), &s3.PutBucketPolicyInput{Bucket: &w.Name, Policy: aws.String(
				`{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::` + w.Name + `/*"}]}`)})
			return err
		},
		"no CORS": func() error {
			_, err := b.people.DeleteBucketCors(b.Context(), &s3.DeleteBucketCorsInput{Bucket: &w.Name})
			return err
		},
	} {
		require.NoError(b, change(), what)
		result, err := s.Apply(b.Context(), w)
		require.NoError(b, err, what)
		require.Len(b, result.Done, 1, what)
		now, err := s.Observe(b.Context(), w)
		require.NoError(b, err)
		require.Equal(b, good, now, what)
	}
	w.Origins = nil
	result, err := s.Apply(b.Context(), w)
	require.NoError(b, err)
	require.Equal(b, []string{"delete CORS " + w.Name}, result.Done)
}

// foreign is D18 for buckets: one without a mark, and one of another object.
func foreign(b *bench) {
	s := b.open(s3test.SecretKey, nil)
	unmarked, other := want("foreign1"), want("foreign2")
	_, err := b.people.CreateBucket(b.Context(), &s3.CreateBucketInput{Bucket: &unmarked.Name})
	require.NoError(b, err)
	theirs := other
	theirs.Mark.Namespace, theirs.Mark.UID = "other", "uid-other"
	_, err = s.Apply(b.Context(), theirs)
	require.NoError(b, err)
	for _, w := range []storage.Want{unmarked, other} {
		b.put(w.Name, "kept", "x")
		before, err := s.Observe(b.Context(), theirs)
		require.NoError(b, err)
		result, err := s.Apply(b.Context(), w)
		require.ErrorIs(b, err, external.ErrOwnedByOther)
		require.ErrorContains(b, err, "bucket "+w.Name)
		require.Empty(b, result.Done)
		require.NoError(b, s.Delete(b.Context(), w.Name, w.Mark, false))
		require.NoError(b, s.Delete(b.Context(), w.Name, w.Mark, true))
		after, err := s.Observe(b.Context(), theirs)
		require.NoError(b, err)
		require.Equal(b, before, after)
		_, err = b.people.HeadObject(b.Context(), &s3.HeadObjectInput{Bucket: &w.Name, Key: aws.String("kept")})
		require.NoError(b, err)
	}
}

// big is C11 and D17: more objects than a page has, versions, delete markers and an open
// upload.
func big(b *bench) {
	const many = 1250 // twice
	s, w := b.open(s3test.SecretKey, nil), want("big")
	_, err := s.Apply(b.Context(), w)
	require.NoError(b, err)
	_, err = b.people.PutBucketVersioning(
		b.Context(),
		&s3.PutBucketVersioningInput{
			Bucket:                  &w.Name,
			VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
		},
	)
	require.NoError(b, err)
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for n := worker; n < many; n += 8 {
				key := fmt.Sprintf("dir/%04d", n)
				for range 2 {
					_, err := b.people.PutObject(b.Context(), &s3.PutObjectInput{Bucket: &w.Name, Key: &key, Body: strings.NewReader("x")})
					if err != nil {
						b.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	_, err = b.people.DeleteObject(b.Context(), &s3.DeleteObjectInput{Bucket: &w.Name, Key: aws.String("dir/0000")})
	require.NoError(b, err)
	_, err = b.people.CreateMultipartUpload(b.Context(), &s3.CreateMultipartUploadInput{Bucket: &w.Name, Key: aws.String("open")})
	require.NoError(b, err)
	require.NoError(b, s.Delete(b.Context(), w.Name, w.Mark, false))
	require.False(b, b.exists(w.Name))
	require.NoError(b, s.Delete(b.Context(), w.Name, w.Mark, false))
}

// retains is C8 for buckets.
func retains(b *bench) {
	s, first := b.open(s3test.SecretKey, nil), want("retained")
	_, err := s.Apply(b.Context(), first)
	require.NoError(b, err)
	b.put(first.Name, "kept", "x")
	require.NoError(b, s.Delete(b.Context(), first.Name, first.Mark, true))
	require.NoError(b, s.Delete(b.Context(), first.Name, first.Mark, true))
	next := first
	next.Mark.UID = "uid-next"
	stranger := next
	stranger.Mark.Name = "stranger"
	_, err = s.Apply(b.Context(), stranger)
	require.ErrorContains(b, err, "has left it")
	require.NoError(b, s.Delete(b.Context(), next.Name, next.Mark, false))
	require.True(b, b.exists(first.Name), "it is not the next one's before it has adopted it")
	result, err := s.Apply(b.Context(), next)
	require.NoError(b, err)
	require.Equal(b, []string{"mark " + next.Name}, result.Done)
	_, err = b.people.HeadObject(b.Context(), &s3.HeadObjectInput{Bucket: &next.Name, Key: aws.String("kept")})
	require.NoError(b, err)
	require.NoError(b, s.Delete(b.Context(), next.Name, next.Mark, false))
	require.False(b, b.exists(next.Name))
}

// crashes ends the program before and after each write of a bucket's life; the next one
// ends as if nothing had been.
func crashes(b *bench) {
	undisturbed, w := b.open(s3test.SecretKey, nil), want("crash")
	count := 0
	for _, deleting := range []bool{false, true} {
		for n, crashed := 1, true; crashed; n++ {
			for _, after := range []bool{false, true} {
				carrier := &wire{crash: n, after: after}
				s := b.open(s3test.SecretKey, carrier)
				var err error
				if deleting {
					_, err = undisturbed.Apply(b.Context(), w)
					require.NoError(b, err)
					b.put(w.Name, "a", "x")
					err = s.Delete(b.Context(), w.Name, w.Mark, false)
				} else {
					_, err = s.Apply(b.Context(), w)
				}
				if crashed = carrier.dead; crashed {
					require.ErrorIs(b, err, external.ErrUnreachable)
					count++
				}
				_, err = undisturbed.Apply(b.Context(), w)
				require.NoError(b, err)
				again, err := undisturbed.Apply(b.Context(), w)
				require.NoError(b, err)
				require.Empty(b, again.Done)
				require.NoError(b, undisturbed.Delete(b.Context(), w.Name, w.Mark, false))
				require.False(b, b.exists(w.Name))
			}
		}
	}
	b.Logf("figure application_s3_crashes %d boundaries", count)
	require.GreaterOrEqual(b, count, 10)
}

// noCORS is a service without support for CORS: a note, and no failure.
func noCORS(b *bench) {
	s, w := b.open(s3test.SecretKey, &wire{refuse: "cors"}), want("nocors")
	for range 2 {
		result, err := s.Apply(b.Context(), w)
		require.NoError(b, err)
		require.True(b, result.NoCORS)
	}
	require.Equal(b, http.StatusNotFound, b.anonymous(w.Name+"/nothing"), "the policy is there")
}

// denied is wrong credentials, and a service that is not there.
func denied(b *bench) {
	_, err := b.open("wrong-wrong", nil).Apply(b.Context(), want("denied"))
	require.ErrorIs(b, err, external.ErrDenied)
	require.ErrorContains(b, err, "credentials")
	require.NotContains(b, err.Error(), "wrong-wrong")
	s, err := storage.Open(
		b.Context(),
		storage.Options{Endpoint: "http://127.0.0.1:1", Region: "x", Credentials: credentials.NewStaticCredentialsProvider("a", "b", "")},
	)
	require.NoError(b, err)
	_, err = s.Apply(b.Context(), want("denied"))
	require.ErrorIs(b, err, external.ErrUnreachable)
}

func TestPoliciesThatMeanTheSameAreNotWrittenAgain(t *testing.T) {
	t.Parallel()
	w := want("policy")
	state := storage.State{Exists: true, Mark: w.Mark.String(), CORS: []storage.Rule{
		{
			Methods: []string{
				"PUT",
				"POST",
				"GET",
				"DELETE",
			},
			Origins: []string{"https://b.example.com", "https://a.example.com"},
			Headers: []string{"*"},
			MaxAge:  3600,
		},
	}}
	for document, same := range map[string]bool{
		`{"Statement":[{"Resource":["arn:aws:s3:::plattr-prod-policy/*"],"Action":["s3:GetObject"],"Principal":{"AWS":["*"]},"Effect":"Allow","Sid":"PlattrPublicRead"}],"Version":"2012-10-17"}`: true,
		`{"Statement":[{"Resource":"arn:aws:s3:::plattr-prod-policy/*","Action":"s3:GetObject","Principal":"*","Effect":"Deny","Sid":"PlattrPublicRead"}],"Version":"2012-10-17"}`:                false,
		`{"Statement":[{"Resource":"arn:aws:s3:::other/*","Action":"s3:GetObject","Principal":"*","Effect":"Allow","Sid":"PlattrPublicRead"}],"Version":"2012-10-17"}`:                            false,
		"": false, "{": false,
	} {
		state.Policy = document
		actions, err := storage.Plan(state, w)
		require.NoError(t, err)
		require.Equal(t, same, len(actions) == 0, document)
	}
	w.Public = false
	state.Policy = `{"Statement":{"Sid":"MadeByHand"}}`
	actions, err := storage.Plan(state, w)
	require.NoError(t, err)
	require.Empty(t, actions, "a policy of people stays")
	state.Blocked, w.Public, state.Policy = true, true, ""
	actions, err = storage.Plan(state, w)
	require.NoError(t, err)
	require.Equal(t, []storage.Action{storage.Unblock, storage.PutPolicy}, actions)
}
