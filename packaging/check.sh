#!/bin/sh
# Lists everything this machine lacks in one line: `check.sh` for the build, `check.sh tests` for build and tests.
# `check.sh packages` prints only the names of Debian's packages, for `make system-packages`.
# PYTHON, CC and JAVA_HOME come from the Makefile.

python=${PYTHON:-python3}
cc=${CC:-cc}
lacking=
packages=

# lacks WHAT PACKAGE...: the packages are Debian's.
lacks() {
    lacking="${lacking:+$lacking, }$1"
    shift
    packages="$packages $*"
}

has() {
    command -v "$1" >/dev/null 2>&1
}

# in_apt FIELD PACKAGE: the field of the version that apt would install; empty without apt.
in_apt() {
    has apt-cache && apt-cache --no-all-versions show "$2" 2>/dev/null | grep "^$1:"
}

has_header() {
    echo "#include <$1>" | $cc -E - >/dev/null 2>&1
}

if ! has "$python"; then
    lacks "Python 3.11 or later" python3 python3-venv python3-dev
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    lacks "Python 3.11 or later ($python is older; with another one: make PYTHON=python3.11)" python3 python3-venv python3-dev
else
    "$python" -c 'import ensurepip, venv' 2>/dev/null || lacks "Python's venv module" python3-venv
    headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    [ -f "$headers/Python.h" ] || lacks "Python's C headers" python3-dev
fi
if ! has "${cc%% *}"; then
    lacks "a C compiler" gcc libc6-dev
elif ! has_header stdlib.h; then
    lacks "the C library's headers" libc6-dev
fi

if [ -n "$1" ]; then
    # NodeSource's nodejs includes npm, and conflicts with Debian's.
    has node || lacks "node (for nsqjs)" nodejs
    has npm || in_apt Provides nodejs | grep -qw npm || lacks "npm (for nsqjs)" npm
    java=openjdk-17-jre-headless
    ! has apt-cache || [ -n "$(in_apt Version $java)" ] || java=default-jre-headless
    "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])' \
        || lacks "Java 17 or later (for Spark)" $java
    has openssl || lacks "openssl" openssl
    has "${cc%% *}" && { has_header openssl/ssl.h && has_header zlib.h || lacks "OpenSSL's and zlib's headers" libssl-dev zlib1g-dev; }
    has "${cc%% *}" || packages="$packages libssl-dev zlib1g-dev"
    has systemd-analyze || lacks "systemd-analyze" systemd
    has dpkg-deb || lacks "dpkg-deb" dpkg
    [ "$(id -u)" = 0 ] || has fakeroot || lacks "fakeroot" fakeroot
    for command in bash git curl; do
        has $command || lacks $command $command
    done
fi

if [ "$1" = packages ]; then
    echo $packages
    exit
fi
[ -z "$lacking" ] && exit
[ "$1" = tests ] && what="The tests" || what="The build"
echo "$what cannot run: this machine lacks $lacking. On Debian: apt-get install$packages" >&2
exit 1
