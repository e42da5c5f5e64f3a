package ctrl_test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

var update = flag.Bool("update", false, "rewrite the generated code")

const (
	importPath = "github.com/seed-9e1ffd66/trueup/cmd/api"
	contract   = "ctrl/v1"
)

// The generators come from the very versions of the modules that the generated
// code is linked with.
var plugins = map[string]string{
	"protoc-gen-go":         "google.golang.org/protobuf/cmd/protoc-gen-go",
	"protoc-gen-connect-go": "connectrpc.com/connect/cmd/protoc-gen-connect-go",
}

// TestTheGeneratedCodeIsUpToDate generates the code of the .proto files, and with
// -update writes it; that is what "make generate" does. It compiles without that
// code.
func TestTheGeneratedCodeIsUpToDate(t *testing.T) {
	t.Parallel()
	root := ".." // holds the folder ctrl
	request := compile(t, root)
	bin := t.TempDir()
	for name, pkg := range plugins {
		out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bin, name), pkg).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	var names []string
	for name := range plugins {
		for _, file := range run(t, filepath.Join(bin, name), request) {
			path := filepath.Join(root, filepath.FromSlash(file.GetName()))
			names = append(names, path)
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, []byte(file.GetContent()), 0o600))
			}
			committed, err := os.ReadFile(path)
			require.NoError(t, err)
			require.True(t, string(committed) == file.GetContent(), `%s is not what the .proto files say: run "make generate"`, path)
		}
	}
	for _, pattern := range []string{"*.pb.go", "*/*.connect.go"} {
		present, err := filepath.Glob(filepath.Join(root, contract, pattern))
		require.NoError(t, err)
		for _, path := range present {
			require.Contains(t, names, path, "generated from no .proto file")
		}
	}
}

// compile returns what the generators are asked.
func compile(t *testing.T, root string) []byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, contract, "*.proto"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	files := make([]string, len(paths))
	for i, path := range paths {
		files[i] = contract + "/" + filepath.Base(path)
	}
	compiler := protocompile.Compiler{
		Resolver:       &protocompile.SourceResolver{ImportPaths: []string{root}},
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(t.Context(), files...)
	require.NoError(t, err)
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: files,
		Parameter:      new("module=" + importPath),
	}
	seen := map[string]bool{}
	var add func(file protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) { // a file after those it imports
		if seen[file.Path()] {
			return
		}
		seen[file.Path()] = true
		for i := range file.Imports().Len() {
			add(file.Imports().Get(i))
		}
		request.ProtoFile = append(request.ProtoFile, toProto(file))
	}
	for _, name := range files {
		add(compiled.FindFileByPath(name))
	}
	data, err := proto.Marshal(request)
	require.NoError(t, err)
	return data
}

func toProto(file protoreflect.FileDescriptor) *descriptorpb.FileDescriptorProto {
	if result, ok := file.(interface {
		FileDescriptorProto() *descriptorpb.FileDescriptorProto
	}); ok {
		return result.FileDescriptorProto() // with comments
	}
	return protodesc.ToFileDescriptorProto(file)
}

func run(t *testing.T, plugin string, request []byte) []*pluginpb.CodeGeneratorResponse_File {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(request), os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	var response pluginpb.CodeGeneratorResponse
	require.NoError(t, proto.Unmarshal(out, &response))
	require.Empty(t, response.GetError())
	return response.GetFile()
}
