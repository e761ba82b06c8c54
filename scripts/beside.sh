#!/bin/sh
# Run a command beside another: `scripts/beside.sh mypy pytest -n 3` runs mypy while pytest runs.
# What the first one says is shown when both are over, and also at once if it fails. If one of them fails, this fails.
set -u
beside=$1
shift

say() { printf '\n%s\n' "$beside" && cat "$said"; }

mkdir -p build
said=build/beside.txt
(
    # shellcheck disable=SC2086 -- a command with its arguments
    $beside >"$said" 2>&1 && exit
    code=$?
    say
    exit "$code"
) &
"$@"
code=$?
wait $!
other=$?
say
[ "$code" -ne 0 ] || code=$other
exit "$code"
