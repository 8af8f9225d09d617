#!/usr/bin/env bash
# Trains on this machine, in a virtual environment of its own.
#
#   launch/local.sh [--dry_run] [--processes=N] --config=... --workdir=... [--config.key=value ...]
#
# Installs the package into .venv unless it is there, and starts training; run again, it continues. With --processes=N
# the run is N processes that share this machine's cores (to try what several hosts would do).
set -euo pipefail
source "$(dirname "$0")/common.sh"

processes=1
train=()
for argument in "$@"; do
    case $argument in
        --dry_run) DRY_RUN=1 ;;
        --processes=*) processes=${argument#*=} ;;
        -h | --help) usage ;;
        *) train+=("$argument") ;;
    esac
done
[[ $processes =~ ^[1-9][0-9]*$ ]] || die "--processes=$processes must be a number from 1 on"
((${#train[@]})) || usage 2

cd "$(dirname "$0")/.."
# -I: the package in this directory alone is not installed.
{ has_venv && .venv/bin/python -I -c "import longsum_jax" 2>/dev/null; } || install_venv
if ((processes == 1)); then
    run .venv/bin/python -m longsum_jax.train "${train[@]}"
    exit
fi
port=${PORT:-8476}
for ((i = 1; i < processes; i++)); do
    member=(--coordinator="localhost:$port" --num_processes="$processes" --process_id="$i")
    if ((DRY_RUN)); then
        run .venv/bin/python -m longsum_jax.train "${train[@]}" "${member[@]}"
    else
        .venv/bin/python -m longsum_jax.train "${train[@]}" "${member[@]}" >/dev/null &
    fi
done
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
run .venv/bin/python -m longsum_jax.train "${train[@]}" \
    --coordinator="localhost:$port" --num_processes="$processes" --process_id=0
