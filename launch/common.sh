# Sourced by the scripts beside it: --dry_run, and one sentence for what is wrong.

DRY_RUN=0

die() {
    echo "error: $*" >&2
    exit 2
}

# Runs a command, or prints it as it could be typed.
run() {
    if ((DRY_RUN)); then
        printf '%q ' "$@"
        echo
    else
        "$@"
    fi
}

# The arguments as one line of shell.
quoted() {
    printf '%q ' "$@"
}

need() {
    ((DRY_RUN)) || command -v "$1" >/dev/null || die "$1 is not installed here; $2"
}

usage() {
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
    exit "${1:-0}"
}

# [--dry_run] ACTION NAME [ARGUMENT...] into DRY_RUN, action, name and rest.
read_action() {
    [[ ${1:-} == --dry_run ]] && DRY_RUN=1 && shift
    [[ ${1:-} == -h || ${1:-} == --help ]] && usage
    (($# >= 2)) || usage 2
    action=$1 name=$2 rest=("${@:3}")
}
