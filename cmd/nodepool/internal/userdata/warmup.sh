#!/bin/sh
# The warm-up of a machine: it waits for a healthy kubelet, pulls images, records them on
# the Node, and powers the machine off if that is to stop itself.
set -u
if [ "${1:-}" != warm ]; then
	# The kubelet may start only after cloud-init, which runs this, has ended.
	exec systemd-run --unit=stratos-warmup --no-block /bin/sh "$0" warm
fi
# At the first boot only. The folder is new on a machine of a copied disk.
sem=${STRATOS_SEM:-/var/lib/cloud/instance/sem}
mkdir -p "$sem"
mkdir "$sem/stratos_warmup" 2>/dev/null || exit 0

cluster=@CLUSTER@
endpoint=@ENDPOINT@
kubeconfig=/var/lib/kubelet/kubeconfig
metadata=http://169.254.169.254/latest
ok=
failed=

say() { echo "stratos warm-up: $*"; }

seconds() { cut -d. -f1 /proc/uptime; }

# fetch REFERENCE REGION: the region is that of a private registry of ECR, or empty.
fetch() {
	if [ -n "$2" ]; then
		password=$(aws ecr get-login-password --region "$2") || return 1
		ctr --namespace k8s.io images pull --hosts-dir /etc/containerd/certs.d --user "AWS:$password" "$1" >/dev/null || return 1
	else
		ctr --namespace k8s.io images pull --hosts-dir /etc/containerd/certs.d "$1" >/dev/null || return 1
	fi
	# The kubelet removes no image that is pinned.
	ctr --namespace k8s.io images label "$1" io.cri-containerd.pinned=pinned >/dev/null
}

# image JSON REFERENCE REGION: the JSON is the name that the attestation has.
image() {
	for pause in 2 4 0; do
		if fetch "$2" "$3"; then
			ok=$ok,$1
			return
		fi
		[ "$pause" = 0 ] || sleep "$pause"
	done
	say "cannot pull $2"
	failed=$failed,$1
}

# attest writes on the Node as the kubelet does; its user name has the name of the Node.
attest() {
	if command -v kubectl >/dev/null; then
		user=$(kubectl --kubeconfig "$kubeconfig" auth whoami -o 'jsonpath={.status.userInfo.username}') || return 1
		node=${user#system:node:}
		[ -n "$node" ] && [ "$node" != "$user" ] || return 1
		kubectl --kubeconfig "$kubeconfig" annotate --overwrite node "$node" "stratos.sh/warmup-attested=$attestation" >/dev/null
		return
	fi
	session=$(curl -sf -m 5 --noproxy '*' -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' "$metadata/api/token") || return 1
	region=$(curl -sf -m 5 --noproxy '*' -H "X-aws-ec2-metadata-token: $session" "$metadata/meta-data/placement/region") || return 1
	token=$(aws eks get-token --cluster-name "$cluster" --region "$region" --output json | sed -n 's/.*"token": *"\([^"]*\)".*/\1/p')
	[ -n "$token" ] || return 1
	node=$(call POST application/json /apis/authentication.k8s.io/v1/selfsubjectreviews \
		'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}' | tr -d '\n' | sed -n 's/.*"username": *"system:node:\([^"]*\)".*/\1/p')
	[ -n "$node" ] || return 1
	escaped=$(printf %s "$attestation" | sed 's/[\\"]/\\&/g')
	call PATCH application/merge-patch+json "/api/v1/nodes/$node" \
		"{\"metadata\":{\"annotations\":{\"stratos.sh/warmup-attested\":\"$escaped\"}}}" >/dev/null
}

# call METHOD TYPE PATH BODY: the token is in no argument, which others could read.
call() {
	printf 'Authorization: Bearer %s\n' "$token" |
		curl -sf -m 30 --cacert /etc/kubernetes/pki/ca.crt -H @- -H "Content-Type: $2" -X "$1" --data "$4" "$endpoint$3"
}

deadline=$(($(seconds) + 300))
until curl -sf -m 4 --noproxy '*' -o /dev/null http://127.0.0.1:10248/healthz; do
	if [ "$(seconds)" -ge "$deadline" ]; then
		say "the kubelet is not healthy after 300 s"
		exit 1
	fi
	sleep 5
done
say "the kubelet is healthy"
@IMAGES@
attestation="{\"bootID\":\"$(cat /proc/sys/kernel/random/boot_id)\",\"images\":[${ok#,}],\"failed\":[${failed#,}]}"
# A healthy kubelet may not have registered its Node yet.
deadline=$(($(seconds) + 300))
until attest; do
	if [ "$(seconds)" -ge "$deadline" ]; then
		say "cannot write the attestation on the Node for 300 s"
		exit 1
	fi
	sleep 5
done
say "attested $attestation"
@STOP@
