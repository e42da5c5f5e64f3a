// Package upstream gives a simulated API server what needs schemas, by the code of
// a real one: server-side apply, JSON and strategic merge patches, bodies of protobuf and YAML
// ([Machinery]), and objects of custom kinds as their definitions say ([Definitions]).
//
// # Custom kinds
//
// [Definitions] reads CustomResourceDefinitions, and refuses what a real server refuses, such as
// a rule of CEL that does not compile, a schema that is not structural, or a misspelt field. The
// error names the file, the field, and what is wrong. Objects of these kinds
//
//   - lose the fields that the schema does not have, or are refused for them if the request says
//     fieldValidation=Strict,
//   - get the defaults of the schema, at each write,
//   - are refused with 422 and causes if a value, a list of type map or set, or a rule does not
//     hold. Rules may compare with oldSelf. What was invalid before and has not changed is allowed,
//   - are validated likewise in the subresources status and scale,
//   - are merged by server-side apply along the list types of the schema,
//   - are selected by their selectableFields.
//
// A test says 60 requests about such a kind to a kube-apiserver, too, and compares the answers.
//
// # What differs from a real server
//
//   - The stored version of a definition is served, and no other one. There is no conversion.
//   - Unknown fields cause no header Warning, and tables have none of the additionalPrinterColumns.
//   - The causes of one refusal have an order, and those of the metadata come alone.
//   - Messages are those of the version of k8s.io/apiextensions-apiserver in go.mod.
//   - What Scenario.Admit adds is not pruned.
//   - Objects of custom kinds without a definition, such as those of [Kinds], are stored as they
//     are sent, and their lists are one field each for server-side apply.
//   - Built-in kinds have list types for server-side apply, and of defaults and validation what
//     [simtest.Server] has.
package upstream
