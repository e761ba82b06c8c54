#!/bin/sh
# Make or complete the environment in .venv: `scripts/env.sh EXTRAS`, for instance `scripts/env.sh server,arrow`.
# A stamp file for each set of extras makes the next run quick. If it is older than setup.cfg, the script installs again.
set -eu
cd "$(dirname "$0")/.."
extras=$1

say() { printf '%s\n' "$*" >&2; }

stamp=.venv/.installed-$extras
newest=$(ls -t "$stamp" .venv/.installed-dev setup.cfg pyproject.toml 2>/dev/null | head -n 1)
case $newest in
.venv/*) exit 0 ;;
esac

python=$(sh scripts/python.sh)
if [ -z "$python" ]; then
    say "Python 3.11 or newer is missing. On Debian: apt-get install python3 python3-venv"
    exit 1
fi

# Debian ships venv without ensurepip; python3-venv completes it.
if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        sh scripts/need.sh --package "python$version-venv"
    fi
    say "Making the environment in .venv with $("$python" --version) ..."
    "$python" -m venv --clear .venv
fi

say "Installing queuey[$extras] into .venv (the first time takes a minute) ..."
pip() { .venv/bin/python -m pip --quiet --disable-pip-version-check "$@"; }
if [ "$extras" = docs ]; then
    # The pages need nothing of Queuey: the requirements of the extra alone.
    .venv/bin/python -c 'import configparser
parser = configparser.RawConfigParser()
parser.read("setup.cfg")
print(parser["options.extras_require"]["docs"])' | pip install --requirement /dev/stdin
else
    pip install --editable ".[$extras]"
fi
touch "$stamp"
