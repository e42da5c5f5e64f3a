// Package tracing makes OpenTelemetry spans of what the packages of trueup do, through the API
// of OpenTelemetry alone: which exporter there is, and what is sampled, is the program's choice.
//
//	span           of                                 attributes
//	pass NAME      a pass of a loop, queue, operator  trueup.key, trueup.requeue_after_ms
//	GET, PATCH ... a request to an API server         those of otelhttp; children of their pass
//	change         a change that a server has read    trueup.scope, .epoch, .version, .key, .deleted
//	handle         the same change, in a reader       the same
//
// A pass that fails has the status Error and the error as an event. The spans of one change are
// in one trace, although neither the log nor the protocol carries its id: server and reader
// derive it from the epoch, the scope and the version. So a change is followed from its commit
// (the moment at which the log has it) through each agent to the requests that apply it.
//
// The parent of change and handle is a span that is never made; it only names the trace. A
// sampler that follows its parent takes that one as not sampled, and then there is no span
// of a change, without any error. The SDK of OpenTelemetry does so by default: without a sampler,
// and with OTEL_TRACES_SAMPLER unset or parentbased_..., it is ParentBased. Give the provider
// TraceIDRatioBased (or OTEL_TRACES_SAMPLER=traceidratio), which decides by the id, and so the
// same in every process; with the ratio 1 it takes all.
//
// With a Queue between a [Replica] and the passes, spans of passes are in traces of their own:
// many changes may be one pass.
package tracing
