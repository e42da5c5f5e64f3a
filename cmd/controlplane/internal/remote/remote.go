// Package remote are the commands that ask a running control plane: what curl can do with
// its API, with tables, completion and errors that name what is wrong.
package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/client"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// options are the settings of all commands.
type options struct {
	server, tokenFile, tokenCache, caFile, output string
	// tables is true for a command that prints CSV, too.
	tables bool
}

const outputCSV = "csv"

// Commands returns get, list, put, delete, approve, rotate, watch, login, logout and whoami.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		getCommand(), listCommand(), putCommand(), deleteCommand(), approveCommand(), rotateCommand(), watchCommand(),
		loginCommand(), logoutCommand(), whoamiCommand(),
	}
}

func (o *options) flags(command *cobra.Command, output bool) {
	o.serverFlags(command)
	command.Flags().StringVar(
		&o.tokenFile, "token-file", "", "file with the token of an administrator; none: the sign-in of controlplane login")
	if output {
		command.Flags().StringVarP(&o.output, "output", "o", "", "json or yaml; none: a table, or for one object YAML")
	}
}

// serverFlags are the flags of commands that need no token.
func (o *options) serverFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&o.server, "server", "http://127.0.0.1:8080", "URL of the control plane")
	flags.StringVar(&o.tokenCache, "token-cache", "",
		"file with the sign-ins of controlplane login; none: trueup/sign-ins.json in the folder of your settings")
	flags.StringVar(&o.caFile, "ca-file", "",
		"PEM file with the authority of the server's certificate, and of the issuer's; none: the system's authorities")
}

// client returns the client of the settings, or an error that names the wrong one.
func (o *options) client(ctx context.Context, stderr io.Writer) (*client.Client, error) {
	switch o.output {
	case "", "json", "yaml":
	case outputCSV:
		if !o.tables {
			return nil, program.Usagef("--output: is csv, which is for list; must be json or yaml")
		}
	default:
		want := "json or yaml"
		if o.tables {
			want = "json, yaml or csv"
		}
		return nil, program.Usagef("--output: is %q, must be %s", program.Shown(o.output), want)
	}
	sender, err := o.sender(ctx, stderr)
	if err != nil {
		return nil, err
	}
	token := o.token
	if o.tokenFile == "" {
		if token, err = o.signedIn(ctx, sender); err != nil {
			return nil, err
		}
	}
	return &client.Client{Server: o.server, Token: token, HTTP: sender}, nil
}

// sender returns what sends requests to the server, or an error that names the wrong setting.
func (o *options) sender(ctx context.Context, stderr io.Writer) (*http.Client, error) {
	to, err := url.Parse(o.server)
	if err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" || strings.Trim(to.Path, "/") != "" {
		return nil, program.Usagef("--server: is %q, must be a URL such as https://control.example.com:8443", program.Shown(o.server))
	}
	transport, err := program.Transport("ca-file", o.caFile)
	if err != nil {
		return nil, err
	}
	const patience = 30 * time.Second
	program.WarnPlain(ctx, slog.New(slog.NewTextHandler(stderr, nil)), map[string]*url.URL{"server": to})
	return &http.Client{Transport: transport, Timeout: patience, CheckRedirect: program.NoRedirect}, nil
}

// token reads the file with the token.
func (o *options) token() (string, error) {
	token, err := program.ReadToken(o.tokenFile)
	switch {
	case errors.Is(err, fs.ErrNotExist) && tokens.Weak(o.tokenFile) == nil && !strings.Contains(o.tokenFile, "/"):
		// It may be the token itself, which is not repeated.
		return "", program.Usagef("--token-file: must be a file with the token, not the token; there is no file of that name")
	case err != nil:
		return "", program.Usagef("--token-file: %w", err)
	}
	return token, nil
}

// show prints an answer as JSON or, unless that is asked for, YAML.
func (o *options) show(out io.Writer, answer json.RawMessage) error {
	if o.output != "json" {
		text, err := yaml.JSONToYAML(escaped(answer))
		if err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(answer))
	decoder.UseNumber() // a number as it is
	if err := decoder.Decode(&value); err != nil {
		return err
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := out.Write(escaped(text.Bytes()))
	return err
}

// escaped escapes in the strings of a JSON text what is not printable: agents have reported it, YAML cannot
// be made of some of it, and a terminal obeys some.
func escaped(text []byte) []byte {
	var all []byte
	for _, r := range string(text) {
		if unicode.IsPrint(r) || r == '\n' || r == '\t' || r == '\r' { // these are between strings
			all = utf8.AppendRune(all, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			all = fmt.Appendf(all, `\u%04x`, unit)
		}
	}
	return all
}

// ask sends a request and prints its answer.
func (o *options) ask(command *cobra.Command, method, path string, request client.Request) error {
	c, err := o.client(command.Context(), command.ErrOrStderr())
	if err != nil {
		return err
	}
	var answer json.RawMessage
	var status int
	request.Status = &status
	if err := c.Do(command.Context(), method, path, request, &answer); err != nil {
		return explained(err)
	}
	if len(answer) == 0 { // 204, of a removal
		answer = json.RawMessage(`{"deleted":true}`)
	}
	if err := o.show(command.OutOrStdout(), answer); err != nil {
		return err
	}
	if status == http.StatusAccepted {
		return &program.StatusError{Status: ExitWaits, Err: errors.New("nothing is done yet: another administrator must send the same request")}
	}
	return nil
}

// ExitWaits is the exit status of a command whose request waits for a second person.
const ExitWaits = 4

// explained replaces the names of the API in an error with the names of the command line.
func explained(err error) error {
	if e, ok := errors.AsType[*client.Error](err); ok {
		e.Detail.Message = strings.ReplaceAll(e.Detail.Message, "?abandon=true", "--abandon")
	}
	return err
}

func isObject(k kind) bool { return k.path != "" }

func isListed(k kind) bool { return k.list != "" }

// isPut are objects that a person changes.
func isPut(k kind) bool { return isObject(k) && k.name != "log" }

// isDeleted are objects that a person deletes.
func isDeleted(k kind) bool { return isPut(k) && isListed(k) }

// has are the kinds that have an action of their own.
func has(names ...string) func(kind) bool {
	return func(k kind) bool {
		return slices.Contains(names, k.name)
	}
}

// first returns the first argument, which is a kind.
func first(args []string) (name string, words []string) {
	if len(args) == 0 {
		return "", nil
	}
	return args[0], args[1:]
}

// target returns the kind and the path of the object that the arguments name.
func target(args []string, takes func(kind) bool) (k kind, path string, err error) {
	name, words := first(args)
	if k, err = find(name, takes); err != nil {
		return k, "", err
	}
	path, err = k.object(words)
	return k, path, err
}

func getCommand() *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "get KIND NAME...",
		Short: "Show an object of a running control plane",
		Example: `  controlplane get cluster 0b8a3c52-9f0e-4c35-8a77-3d1f2f9c5a10
  controlplane get service PROJECT_ID SERVICE_ID production -o json
  controlplane get log`,
		ValidArgsFunction: complete(&o, isObject),
		RunE: func(command *cobra.Command, args []string) error {
			_, path, err := target(args, isObject)
			if err != nil {
				return err
			}
			return o.ask(command, http.MethodGet, path, client.Request{})
		},
	}
	o.flags(command, true)
	return command
}

func putCommand() *cobra.Command {
	var o options
	var file string
	command := &cobra.Command{
		Use:   "put KIND NAME... -f FILE",
		Short: "Create or change an object of a running control plane",
		Long: `Create or change an object of a running control plane.

The file has the body of the request as YAML or JSON, or what get has printed; - is the
standard input. A member that the API does not have is an error, and nothing is changed.`,
		Example: `  echo 'region: nyc3' | controlplane put cluster 0b8a3c52-9f0e-4c35-8a77-3d1f2f9c5a10 -f -
  controlplane put service PROJECT_ID SERVICE_ID production -f service.yaml`,
		ValidArgsFunction: complete(&o, isPut),
		RunE: func(command *cobra.Command, args []string) error {
			k, path, err := target(args, isPut)
			if err != nil {
				return err
			}
			body, err := read(file, command.InOrStdin())
			if err != nil {
				return err
			}
			if body, err = k.taken(body, args[1:]); err != nil {
				return err
			}
			return o.ask(command, http.MethodPut, path, client.Request{Body: body})
		},
	}
	o.flags(command, true)
	command.Flags().StringVarP(&file, "filename", "f", "", "file with the object as YAML or JSON; - is the standard input (required)")
	return command
}

// read returns a file of YAML or JSON as JSON. It must be one object without a key twice.
func read(file string, stdin io.Reader) (json.RawMessage, error) {
	var text []byte
	var err error
	switch file {
	case "":
		return nil, program.Usagef("--filename: is not set, must be a file, or - for the standard input")
	case "-":
		text, err = io.ReadAll(stdin)
	default:
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, program.Usagef("--filename: %w", err)
	}
	if first := bytes.TrimSpace(text); len(first) > 0 && first[0] == '{' {
		// The server finds what is twice in JSON. Text that is none may be YAML.
		var object json.RawMessage
		decoder := json.NewDecoder(bytes.NewReader(text))
		if decoder.Decode(&object) == nil {
			if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
				return nil, program.Usagef("--filename: %s has something after the JSON object", file)
			}
			return object, nil
		}
	}
	if program.Documents(text) > 1 {
		return nil, program.Usagef("--filename: %s has several YAML documents, must have one", file)
	}
	body, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, program.Usagef("--filename: %s: %w", file, err)
	}
	if len(body) == 0 || body[0] != '{' {
		return nil, program.Usagef("--filename: %s has no object, must be YAML or JSON such as {\"region\": \"nyc3\"}", file)
	}
	return body, nil
}

func deleteCommand() *cobra.Command {
	var o options
	var abandon bool
	command := &cobra.Command{
		Use:   "delete KIND NAME...",
		Short: "Delete an object of a running control plane",
		Long: `Delete an object of a running control plane.

The agent of a deleted project, service or resource removes what it has made. A cluster or
region must be empty, and its agent stopped; with --abandon it goes although it is not
empty, and what its agent has made stays where it is.`,
		ValidArgsFunction: complete(&o, isDeleted),
		RunE: func(command *cobra.Command, args []string) error {
			k, path, err := target(args, isDeleted)
			if err != nil {
				return err
			}
			query := url.Values{}
			if abandon {
				if !has("cluster", "region")(k) {
					return program.Usagef("--abandon: is for a cluster or a region, not for a %s", k.name)
				}
				query.Set("abandon", "true")
			}
			return o.ask(command, http.MethodDelete, path, client.Request{Query: query})
		},
	}
	o.flags(command, true)
	command.Flags().BoolVar(&abandon, "abandon", false, "remove a cluster or region that is not empty; what its agent has made stays")
	return command
}
