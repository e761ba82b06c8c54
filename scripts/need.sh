#!/bin/sh
# Install missing programs: `scripts/need.sh nginx mvn=maven` looks for the commands nginx and mvn, and
# installs the Debian package of each missing one: of the same name, or of the name after `=`.
# `--package NAME` installs without a check. Without root it prints what to install.
set -eu

if [ "$1" = --package ]; then
    shift
    missing=$*
else
    missing=
    for program in "$@"; do
        # Debian keeps servers in folders that only root's PATH has.
        PATH=$PATH:/usr/sbin:/sbin command -v "${program%%=*}" >/dev/null 2>&1 || missing="$missing ${program#*=}"
    done
fi
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    printf 'Installing%s with apt-get ...\n' " ${missing# }" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2
    # shellcheck disable=SC2086 -- a list of names
    apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
    printf 'Missing:%s. Install it as root first: apt-get install%s\n' " ${missing# }" " ${missing# }" >&2
    exit 1
fi
