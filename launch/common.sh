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

# Tells whether .venv is there and complete.
has_venv() {
    [[ -x .venv/bin/python && ! -e .venv/incomplete ]]
}

# Installs the package and the arguments into .venv, which is made if need be and marked by a file until that is done.
install_venv() {
    has_venv || new_venv || return
    run .venv/bin/pip install --quiet -e ".[all]" "$@" && run rm -f .venv/incomplete
}

# Takes a Python that the package runs on: one that is installed, or one that uv downloads.
new_venv() {
    run rm -rf .venv
    run mkdir .venv
    run touch .venv/incomplete
    local python
    for python in python3 python3.13 python3.12 python3.11; do
        if "$python" -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; then
            run "$python" -m venv .venv
            return
        fi
    done
    command -v uv >/dev/null || die "$HOSTNAME has no Python 3.11 or newer; install one there, or uv, which downloads one"
    run uv venv --quiet --seed --allow-existing --python=3.11 .venv
}

usage() {
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
    exit "${1:-0}"
}

# ACTION NAME [ARGUMENT...], with --dry_run anywhere, into DRY_RUN, action, name and rest.
read_action() {
    local argument words=()
    for argument in "$@"; do
        if [[ $argument == --dry_run ]]; then
            DRY_RUN=1
        else
            words+=("$argument")
        fi
    done
    [[ ${words[0]:-} == -h || ${words[0]:-} == --help ]] && usage
    ((${#words[@]} >= 2)) || usage 2
    action=${words[0]} name=${words[1]} rest=("${words[@]:2}")
}

# Refuses arguments of actions that have none but NAME, which would be done without them.
name_alone() {
    (($# == 0)) || die "$action $name: unknown argument \"$1\"; leave it out (settings are environment variables)"
}
