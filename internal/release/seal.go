package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	sumsName       = "SHA256SUMS"
	signatureName  = "SHA256SUMS.sig"
	provenanceName = "provenance.intoto.json"
)

// sums returns the SHA-256 of each file of the release, but for those about the others.
func (r *release) sums(without ...string) (map[string]string, error) {
	all := map[string]string{}
	err := filepath.WalkDir(r.out, func(path string, file fs.DirEntry, err error) error {
		if err != nil || file.IsDir() || slices.Contains(without, file.Name()) {
			return err
		}
		name, err := filepath.Rel(r.out, path)
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // it is read
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		all[filepath.ToSlash(name)] = hex.EncodeToString(sum.Sum(nil))
		return err
	})
	return all, err
}

// checksums writes the SHA-256 of each file of the release, in the order of the names.
func (r *release) checksums() error {
	sums, err := r.sums(sumsName, signatureName)
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		lines.WriteString(sums[name] + "  " + name + "\n")
	}
	return r.write(sumsName, []byte(lines.String()))
}

// provenance writes from what and how the files were built, as an in-toto statement with
// the predicate of SLSA. It has no time and no name of a machine: both would make each run
// another one. The checksums, and so their signature, cover it.
func (r *release) provenance(revision string) error {
	sums, err := r.sums(sumsName, signatureName, provenanceName)
	if err != nil {
		return err
	}
	parameters, err := structpb.NewStruct(map[string]any{
		"version": r.version, "programs": list(r.programs), "platforms": list(r.platforms),
	})
	if err != nil {
		return err
	}
	predicate := &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{
			BuildType:          "https://" + trueup + "/blob/" + r.version + "/docs/releasing.md",
			ExternalParameters: parameters,
			ResolvedDependencies: []*intoto.ResourceDescriptor{{
				Uri: "git+https://" + trueup, Digest: map[string]string{"gitCommit": revision},
			}},
		},
		RunDetails: &slsa.RunDetails{Builder: &slsa.Builder{Id: "https://" + trueup + "/blob/" + r.version + "/internal/release"}},
	}
	statement := &intoto.Statement{Type: intoto.StatementTypeUri, PredicateType: "https://slsa.dev/provenance/v1"}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		statement.Subject = append(statement.Subject, &intoto.ResourceDescriptor{Name: name, Digest: map[string]string{"sha256": sums[name]}})
	}
	text, err := protojson.Marshal(predicate)
	if err != nil {
		return err
	}
	statement.Predicate = &structpb.Struct{}
	if err := protojson.Unmarshal(text, statement.Predicate); err != nil {
		return err
	}
	if err := errors.Join(predicate.Validate(), statement.Validate()); err != nil {
		return fmt.Errorf("provenance: %w", err)
	}
	if text, err = protojson.Marshal(statement); err != nil {
		return err
	}
	// protojson puts spaces where it likes: they differ from build to build of this program.
	var content any
	if err := json.Unmarshal(text, &content); err != nil {
		return err
	}
	if text, err = json.MarshalIndent(content, "", "  "); err != nil {
		return err
	}
	return r.write(provenanceName, append(text, '\n'))
}

func list[T any](all []T) []any {
	texts := make([]any, 0, len(all))
	for _, one := range all {
		texts = append(texts, fmt.Sprint(one))
	}
	return texts
}

// publicName is the file of the checkout by which users verify a release.
const publicName = "release.pem"

// public returns the public half of the key as PEM.
func (r *release) public() ([]byte, error) {
	public, err := x509.MarshalPKIXPublicKey(&r.key.PublicKey)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), err
}

// signable returns an error if users could not verify a signature with this key.
func (r *release) signable() error {
	if r.key == nil {
		return nil
	}
	published, err := os.ReadFile(filepath.Join(r.root, publicName))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: is not in the commit: users verify with it: openssl pkey -in KEY -pubout -out %[1]s", publicName)
	}
	if err != nil {
		return err
	}
	public, err := r.public()
	if err != nil {
		return err
	}
	block, _ := pem.Decode(published)
	if block == nil || !bytes.Equal(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}), public) {
		return fmt.Errorf("--key: is not the private half of %s, so users could not verify", publicName)
	}
	return nil
}

// sign signs the checksums with the key, if there is one. The signature is a number that
// depends on key and content alone (RFC 6979), as text in base64: openssl and cosign verify it.
func (r *release) sign() error {
	if r.key == nil {
		fmt.Fprintln(r.log, "not signed: there is no --key") //nolint:errcheck // progress
		return nil
	}
	text, err := os.ReadFile(filepath.Join(r.out, sumsName))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	signature, err := r.key.Sign(nil, sum[:], crypto.SHA256)
	if err != nil {
		return fmt.Errorf("sign %s: %w", sumsName, err)
	}
	fmt.Fprintf(r.log, "signed: %s verifies it\n", publicName) //nolint:errcheck // progress
	return r.write(signatureName, []byte(base64.StdEncoding.EncodeToString(signature)+"\n"))
}

// readKey reads a private key. No error has a part of the content.
func readKey(name string) (*ecdsa.PrivateKey, error) {
	const wanted = "must be a private key of ECDSA P-256 in PEM, without a password, " +
		"as of: openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256"
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("--key: %w", err)
	}
	var found any
	for block, rest := pem.Decode(text); block != nil && found == nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "PRIVATE KEY":
			found, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			found, err = x509.ParseECPrivateKey(block.Bytes)
		}
		if err != nil {
			return nil, fmt.Errorf("--key: the file %s %s", name, wanted)
		}
	}
	key, ok := found.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("--key: the file %s %s", name, wanted)
	}
	return key, nil
}
