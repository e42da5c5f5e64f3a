package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
)

// sealed is a release of two files that is sealed with a key of openssl.
func sealed(t *testing.T) (r release, public string) {
	t.Helper()
	dir := t.TempDir()
	private, public := filepath.Join(dir, "key.pem"), filepath.Join(dir, "public.pem")
	openssl(t, "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", private)
	openssl(t, "pkey", "-in", private, "-pubout", "-out", public)
	key, err := readKey(private)
	require.NoError(t, err)
	var log bytes.Buffer
	r = release{
		out: t.TempDir(), version: "v0.1.0", programs: []string{"trueup"}, platforms: []platform{{"linux", "amd64"}}, key: key, log: &log,
	}
	require.NoError(t, os.Mkdir(filepath.Join(r.out, "images"), 0o700))
	require.NoError(t, r.write("trueup.tar.gz", []byte("one")))
	require.NoError(t, r.write("images/index.json", []byte("two")))
	require.NoError(t, r.provenance(strings.Repeat("ab", 20)))
	require.NoError(t, r.checksums())
	require.NoError(t, r.sign())
	require.Equal(t, "signed: release.pem verifies it\n", log.String())
	return r, public
}

func openssl(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed")
	}
	out, err := exec.CommandContext(t.Context(), "openssl", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestAUserVerifiesARelease verifies one by the commands of docs/releasing.md, and sees that
// a changed byte of anything does not pass.
func TestAUserVerifiesARelease(t *testing.T) {
	t.Parallel()
	r, public := sealed(t)
	verify := func() error {
		cmd := exec.CommandContext(
			t.Context(), "sh", "-ec",
			`base64 -d SHA256SUMS.sig >"$1/sig" && openssl dgst -sha256 -verify "$2" -signature "$1/sig" SHA256SUMS &&
				sha256sum --check --strict SHA256SUMS`,
			"sh", t.TempDir(), public,
		)
		cmd.Dir = r.out
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		return err
	}
	require.NoError(t, verify())
	lines, err := os.ReadFile(filepath.Join(r.out, sumsName))
	require.NoError(t, err)
	require.Regexp(t, `^([0-9a-f]{64}  \S+\n){3}$`, string(lines), "shasum of macOS wants two spaces")
	for _, name := range []string{"trueup.tar.gz", "images/index.json", provenanceName, sumsName, signatureName} {
		path := filepath.Join(r.out, name)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		changed := bytes.Clone(text)
		if changed[0]++; name == signatureName {
			der, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
			require.NoError(t, err)
			der[len(der)-1] ^= 1
			changed = []byte(base64.StdEncoding.EncodeToString(der))
		}
		require.NoError(t, os.WriteFile(path, changed, 0o600))
		require.Error(t, verify(), "%s is changed", name)
		require.NoError(t, os.WriteFile(path, text, 0o600))
	}
	require.NoError(t, verify())

	first, err := os.ReadFile(filepath.Join(r.out, signatureName))
	require.NoError(t, err)
	require.NoError(t, r.sign())
	second, err := os.ReadFile(filepath.Join(r.out, signatureName))
	require.NoError(t, err)
	require.Equal(t, first, second, "the same key and content, another signature")
}

// TestAKeyThatUsersDoNotKnowIsRefused has a commit without a public key, and one of another.
func TestAKeyThatUsersDoNotKnowIsRefused(t *testing.T) {
	t.Parallel()
	r, public := sealed(t)
	_, other := sealed(t)
	r.root = t.TempDir()
	require.ErrorContains(t, r.signable(), "release.pem: is not in the commit")
	for name, refused := range map[string]bool{public: false, other: true} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(r.root, publicName), text, 0o600))
		if refused {
			require.ErrorContains(t, r.signable(), "--key: is not the private half of release.pem")
			continue
		}
		require.NoError(t, r.signable())
	}
	r.key = nil
	require.NoError(t, r.signable())
}

func TestTheProvenanceNamesEachFileAndTheCommit(t *testing.T) {
	t.Parallel()
	r, _ := sealed(t)
	text, err := os.ReadFile(filepath.Join(r.out, provenanceName))
	require.NoError(t, err)
	var statement intoto.Statement
	require.NoError(t, protojson.Unmarshal(text, &statement))
	require.NoError(t, statement.Validate())
	require.Equal(t, "https://slsa.dev/provenance/v1", statement.GetPredicateType())
	sums, err := r.sums(sumsName, signatureName, provenanceName)
	require.NoError(t, err)
	require.Len(t, sums, 2)
	require.Len(t, statement.GetSubject(), 2)
	for _, subject := range statement.GetSubject() {
		require.Equal(t, map[string]string{"sha256": sums[subject.GetName()]}, subject.GetDigest())
	}
	part, err := json.Marshal(statement.GetPredicate().AsMap())
	require.NoError(t, err)
	var predicate slsa.Provenance
	require.NoError(t, protojson.Unmarshal(part, &predicate))
	require.NoError(t, predicate.Validate())
	require.Equal(t, strings.Repeat("ab", 20), predicate.GetBuildDefinition().GetResolvedDependencies()[0].GetDigest()["gitCommit"])
	require.Nil(t, predicate.GetRunDetails().GetMetadata(), "a time differs in each run")
}

func TestWithoutAKeyItSaysThatNothingIsSigned(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	r := release{out: t.TempDir(), log: &log}
	require.NoError(t, r.checksums())
	require.NoError(t, r.sign())
	require.Equal(t, "not signed: there is no --key\n", log.String())
	require.NoFileExists(t, filepath.Join(r.out, signatureName))
}

// TestAKeyOfAnotherKindIsRefused also sees that no part of a file is in the error.
func TestAKeyOfAnotherKindIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "key.pem")
	refused := func() {
		t.Helper()
		_, err := readKey(name)
		require.ErrorContains(t, err, "--key: the file "+name+" must be a private key of ECDSA P-256 in PEM")
		require.Less(t, len(err.Error()), 250+len(name))
	}
	for _, content := range []string{"", "hunter2", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
		refused()
	}
	openssl(t, "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384", "-out", name)
	refused()
	openssl(t, "genpkey", "-algorithm", "ed25519", "-out", name)
	refused()
	openssl(t, "ecparam", "-name", "prime256v1", "-genkey", "-out", name) // as older openssl writes it
	_, err := readKey(name)
	require.NoError(t, err)
	_, err = readKey(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
