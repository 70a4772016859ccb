#!/usr/bin/env bash
# What the GitHub Action of ../action.yml does; its inputs are in the environment.
set -euo pipefail

if [ -z "${TRACETOOL:-}" ]; then
    root=${RUNNER_TEMP:-/tmp}/tracetool
    cargo install --quiet --locked --path "$(dirname "$0")/.." --root "$root"
    TRACETOOL=$root/bin/tracetool
fi

# Lines to arguments, each behind `$1` where that is given; globs are spread, and what matches nothing stays for
# tracetool to complain about.
arguments=()
add() {
    local line found
    while IFS= read -r line; do
        [ -n "$line" ] || continue
        while IFS= read -r found; do
            arguments+=(${1:+"$1"} "$found")
        done < <(if [ "${2:-}" = glob ]; then compgen -G "$line" || printf '%s\n' "$line"; else printf '%s\n' "$line"; fi)
    done
}
add "" glob <<<"${TRACES:-}"
add --baseline <<<"${BASELINE:-}"
add --config <<<"${CONFIG:-}"
add "" <<<"${ARGS:-}"

if [ -n "${JUNIT:-}" ]; then
    # What fails here fails below as well, where it is told why and with its own exit code.
    "$TRACETOOL" check "${arguments[@]}" --format junit -o "$JUNIT" 2>/dev/null || true
fi
exec "$TRACETOOL" check "${arguments[@]}" --format github --step-summary
