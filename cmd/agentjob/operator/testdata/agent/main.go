// Command agent is an agent of tests. It prints as JSON what it has got: it uses what the
// operator gives it, and no other setting. It ends with the status that its prompt names.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

type config struct {
	Prompt       string
	AllowedTools []string
	McpServers   []struct{ HeadersFile string }
	Repositories []struct{ TokenFile string }
}

func main() {
	if len(os.Args) > 1 {
		time.Sleep(time.Hour)
	}
	text, err := os.ReadFile("/etc/agent/agent.json")
	must(err)
	var c config
	must(json.Unmarshal(text, &c))
	seen := map[string]string{
		"prompt": c.Prompt, "tools": strings.Join(c.AllowedTools, ";"), "token": os.Getenv("AGENT_TOKEN"),
		"user": fmt.Sprint(os.Getuid(), ":", os.Getgid()),
		"home": write(filepath.Join(os.Getenv("HOME"), "notes")), "tmp": write("/tmp/a"), "root": write("/a"), "config": write("/etc/agent/b"),
		"nodes": list("nodes", ""), "secrets": list("secrets", "default"),
	}
	for _, s := range c.McpServers {
		seen["headers"] = read(s.HeadersFile)
	}
	for _, r := range c.Repositories {
		seen["repository"] = read(r.TokenFile)
	}
	if path := os.Getenv("PERSISTENT"); path != "" {
		file, err := os.OpenFile(filepath.Join(path, "runs"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
		must(err)
		_, err = file.WriteString("x")
		must(err)
		seen["runs"] = read(file.Name())
	}
	must(json.NewEncoder(os.Stdout).Encode(seen))
	code, _ := strconv.Atoi(strings.TrimPrefix(c.Prompt, "exit "))
	os.Exit(code)
}

// list returns how many objects the agent's account may list, or why not.
func list(plural, namespace string) string {
	access, err := rest.InClusterConfig()
	if err != nil {
		return "no account"
	}
	client, err := dynamic.NewForConfig(access)
	must(err)
	found, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: plural}).Namespace(namespace).
		List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return "forbidden: " + strconv.FormatBool(strings.Contains(err.Error(), "forbidden"))
	}
	return strconv.Itoa(len(found.Items))
}

func write(path string) string {
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		return "cannot be written"
	}
	return "written"
}

func read(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(99)
	}
}
