// Package config reads the configuration of a krane agent: a YAML file, and before it
// flags and environment variables.
//
//	instance_id: krane-0                  # default: the variable HOSTNAME
//	cluster:
//	  region: eu-central-1                # required
//	  platform: aws                       # as the region is registered
//	  cell_id: a                          # names one of several agents of a region
//	control:
//	  url: https://control.example.com    # required
//	  token: ...                          # or token_file
//	allow_http: false                     # true: either url may be plain HTTP to another machine
//	token_file: /run/secrets/krane/token  # read again when it changes
//	token_secret: krane-system/krane-own  # a Secret that keeps renewed tokens; none: none is renewed
//	rpc_port: 8070
//	health_probe_bind_address: :8070      # of /healthz and /readyz; goes before rpc_port
//	metrics_bind_address: ""              # of /metrics; empty: the same
//	vault:
//	  url: https://vault.example.com      # with token; or key_file; or nothing:
//	  token: ...                          # then no variables can be decrypted
//	  key_file: /run/secrets/krane/key
//	registry:                             # all three or none
//	  url: registry.example.com
//	  username: krane
//	  password: ...
//	storage_class_name: ebs-csi-gp3
//	runtime_class: gvisor
//	pod_security: restricted              # or baseline: the loosest that a deployment may ask for
//	state_dir: ""                         # keeps the limit of deletions over a restart
//	max_delete_percent: 10
//	k8s:
//	  qps: 100
//	  burst: 200
//
// The variable of a setting is its name in capitals behind KRANE_, with _ for
// each dot: KRANE_CONTROL_URL, KRANE_K8S_QPS. An empty variable is none, and so
// is an empty value in the file.
//
// Every problem is reported at once, each as a [*FieldError] with what would be
// right. What is secret appears in no error, and prints as "(hidden)".
package config
