#!/usr/bin/env bash
# Trains on a Cloud TPU slice, on all of its hosts, from your own machine.
#
#   launch/tpu_vm.sh [--dry_run] create  NAME
#   launch/tpu_vm.sh [--dry_run] install NAME
#   launch/tpu_vm.sh [--dry_run] run     NAME --config=... --workdir=/runs/NAME [--config.key=value ...]
#   launch/tpu_vm.sh [--dry_run] tail    NAME
#   launch/tpu_vm.sh [--dry_run] stop    NAME
#   launch/tpu_vm.sh [--dry_run] delete  NAME
#
# From the environment: BUCKET, which gcsfuse mounts on every host as /runs (needed to install); ZONE (us-west4-a), TYPE
# (v5litepod-16), VERSION (v2-alpha-tpuv5-lite), PROJECT (gcloud's own), SPOT=1 for machines that may be taken away.
# Every action can be repeated: create leaves a slice that is there, install copies the last commit again, run leaves a
# training that is under way. After a preemption: create, install, run.
set -euo pipefail
source "$(dirname "$0")/common.sh"

read_action "$@"
set -- ${rest[@]+"${rest[@]}"} # macOS has bash 3.2, which refuses empty arrays
zone=${ZONE:-us-west4-a} type=${TYPE:-v5litepod-16} version=${VERSION:-v2-alpha-tpuv5-lite}
where=(--zone="$zone")
[[ -z ${PROJECT:-} ]] || where+=(--project="$PROJECT")
need gcloud "install the Google Cloud CLI and log in"

on_all_workers() {
    run gcloud compute tpus tpu-vm ssh "$name" "${where[@]}" --worker=all --command="$1"
}

exists() {
    ((!DRY_RUN)) && gcloud compute tpus tpu-vm describe "$name" "${where[@]}" >/dev/null 2>&1
}

# Leaves a mount that is there.
mount_bucket() {
    cat <<END
command -v gcsfuse >/dev/null || { echo "error: gcsfuse is missing on \$(hostname); install it there" >&2; exit 2; }
sudo mkdir -p /runs && { mountpoint -q /runs || { sudo chown \$USER /runs && gcsfuse --implicit-dirs $BUCKET /runs; }; }
END
}

# Preempted slices stay in the list, without machines.
preempted() {
    [[ $(gcloud compute tpus tpu-vm describe "$name" "${where[@]}" --format="value(state)") == PREEMPTED ]]
}

# The command line of training alone, not of the shells and of the tail that name it, too.
training='^[^ ]*python -m longsum_jax[.]train'

case $action in create | install | tail | stop | delete) name_alone "$@" ;; esac
case $action in
    create)
        if exists && preempted; then
            run gcloud compute tpus tpu-vm delete "$name" "${where[@]}" --quiet
        fi
        if exists; then
            echo "$name is there"
        else
            run gcloud compute tpus tpu-vm create "$name" "${where[@]}" --accelerator-type="$type" --version="$version" \
                ${SPOT:+--spot}
        fi
        ;;
    install)
        [[ -n ${BUCKET:-} ]] || die "BUCKET is not set; give the bucket that keeps the runs, without gs://"
        tree=$(mktemp -d)
        trap 'rm -rf "$tree"' EXIT
        git -C "$(dirname "$0")/.." archive --format=tar.gz --output="$tree/longsum_jax.tar.gz" HEAD
        shown=$tree
        ((DRY_RUN)) && shown=TREE
        run gcloud compute tpus tpu-vm scp "$shown/longsum_jax.tar.gz" "$name:" "${where[@]}" --worker=all
        # The images have Python 3.10, which is too old; uv downloads another.
        on_all_workers 'mkdir -p longsum_jax && tar -xzf longsum_jax.tar.gz -C longsum_jax && cd longsum_jax &&
            PATH=$PATH:$HOME/.local/bin && { command -v uv >/dev/null || python3 -m pip install --quiet --user uv; } &&
            source launch/common.sh && install_venv "jax[tpu]"'
        on_all_workers "$(mount_bucket)"
        ;;
    run)
        (($#)) || die "run $name: say what to train, --config=... --workdir=/runs/$name"
        train=$(quoted .venv/bin/python -m longsum_jax.train "$@")
        on_all_workers "cd longsum_jax && if pgrep -f '$training' >/dev/null; then echo training is under way; else
            nohup $train >train.log 2>&1 </dev/null & sleep 1; fi"
        ;;
    tail) run gcloud compute tpus tpu-vm ssh "$name" "${where[@]}" --worker=0 --command='tail -n 40 -f longsum_jax/train.log' ;;
    stop) on_all_workers "pkill -TERM -f '$training' || true" ;; # saves first
    delete)
        if ((DRY_RUN)) || exists; then
            run gcloud compute tpus tpu-vm delete "$name" "${where[@]}" --quiet
        fi
        ;;
    *) die "unknown action \"$action\"; use create, install, run, tail, stop or delete" ;;
esac
