#!/usr/bin/env bash
# Trains on TPUs or GPUs of a Kubernetes cluster that has the JobSet controller.
#
#   launch/gke.sh [--dry_run] apply  NAME --config=... --workdir=/runs/NAME [--config.key=value ...]
#   launch/gke.sh [--dry_run] tail   NAME
#   launch/gke.sh [--dry_run] delete NAME
#
# From the environment: IMAGE, an image with this package installed, and BUCKET, which /runs is (both needed);
# SERVICE_ACCOUNT that may write to it (default); KIND, "tpu" (default) or "gpu"; HOSTS (4); DEVICES, chips or GPUs of a
# host (4 or 8); TPU (tpu-v5-lite-podslice) and TOPOLOGY (4x4), or GPU (nvidia-h100-80gb).
# apply again changes nothing; delete and apply continue from the last checkpoint. --dry_run prints what would be applied.
set -euo pipefail
source "$(dirname "$0")/common.sh"

read_action "$@"
set -- ${rest[@]+"${rest[@]}"} # macOS has bash 3.2, which refuses empty arrays
[[ $name =~ ^[a-z]([a-z0-9-]*[a-z0-9])?$ ]] || die "NAME=$name must be lower case letters, digits and dashes"
need kubectl "install it and point it at your cluster"

manifest() {
    local selector resource devices indent=$'\n                '
    case ${KIND:-tpu} in
        tpu)
            selector="cloud.google.com/gke-tpu-accelerator: ${TPU:-tpu-v5-lite-podslice}"
            selector+="${indent}cloud.google.com/gke-tpu-topology: ${TOPOLOGY:-4x4}"
            resource=google.com/tpu devices=${DEVICES:-4}
            ;;
        gpu)
            selector="cloud.google.com/gke-accelerator: ${GPU:-nvidia-h100-80gb}"
            resource=nvidia.com/gpu devices=${DEVICES:-8}
            ;;
        *) die "KIND=$KIND is neither tpu nor gpu" ;;
    esac
    local template arguments
    template=$(<"$(dirname "$0")/jobset.yaml")
    arguments=$(python3 -c 'import json, sys; print(json.dumps(sys.argv[1:]))' "$@")
    template=${template//@NAME@/"$name"}
    template=${template//@HOSTS@/"${HOSTS:-4}"}
    template=${template//@IMAGE@/"$IMAGE"}
    template=${template//@BUCKET@/"$BUCKET"}
    template=${template//@SERVICE_ACCOUNT@/"${SERVICE_ACCOUNT:-default}"}
    template=${template//@NODE_SELECTOR@/"$selector"}
    template=${template//@RESOURCE@/"$resource"}
    template=${template//@DEVICES@/"$devices"}
    echo "${template//@ARGS@/"$arguments"}"
}

case $action in tail | delete) name_alone "$@" ;; esac
case $action in
    apply)
        (($#)) || die "apply $name: say what to train, --config=... --workdir=/runs/$name"
        [[ -n ${IMAGE:-} ]] || die "IMAGE is not set; give an image that has this package installed"
        [[ -n ${BUCKET:-} ]] || die "BUCKET is not set; give the bucket that keeps the runs"
        if ((DRY_RUN)); then
            echo "kubectl apply -f - <<'END'"
            manifest "$@"
            echo END
        else
            manifest "$@" | kubectl apply -f -
        fi
        ;;
    tail) run kubectl logs -f --tail=40 -l "jobset.sigs.k8s.io/jobset-name=$name,batch.kubernetes.io/job-completion-index=0" ;;
    delete) run kubectl delete jobset "$name" --ignore-not-found ;;
    *) die "unknown action \"$action\"; use apply, tail or delete" ;;
esac
