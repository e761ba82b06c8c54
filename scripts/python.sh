#!/bin/sh
# Print the interpreter that the environment is made with: $PYTHON, or the first of the path that is new enough. Of several
# with one name, those that were built with PGO come first: they take a sixth less time (docs/operations.md).
set -eu
cd "$(dirname "$0")/.."

# All of this name on the path.
interpreters() {
    others=
    for folder in $(printf '%s' "$PATH" | tr ':' ' '); do
        [ -x "$folder/$1" ] || continue
        if "$folder/$1" -P queuey/interpreter.py 2>/dev/null; then
            printf '%s\n' "$folder/$1"
        else
            others="$others $folder/$1"
        fi
    done
    [ -z "$others" ] || printf '%s\n' $others
}

if [ -n "${PYTHON:-}" ]; then
    printf '%s\n' "$PYTHON"
    exit
fi
for name in python3.11 python3 python3.12; do
    for found in $(interpreters "$name"); do
        if "$found" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$found"
            exit
        fi
    done
done
