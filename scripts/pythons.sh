#!/bin/sh
# Find Pythons on this machine that run onescan and can make a virtual environment.
#
#   pythons.sh all       one for each supported version, oldest first
#   pythons.sh newest    the last of these
#   pythons.sh default   python3 where it will do, otherwise the newest
#
# A pyenv shim whose version is not selected exists but does not run, so pyenv's own
# folder is searched as well.

version() {
    "$1" -c '
import sys, ensurepip, venv
if sys.version_info < (3, 11): sys.exit(1)
print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

all() {
    pyenv=$(pyenv root 2>/dev/null)
    for wanted in 3.11 3.12 3.13; do
        for python in "python$wanted" python3 \
            "$pyenv/versions/$wanted."*"/bin/python$wanted"; do
            if [ "$(version "$python")" = "$wanted" ]; then
                echo "$python"
                break
            fi
        done
    done
}

case $1 in
all) all ;;
newest) all | tail -n 1 ;;
default) if version python3 >/dev/null; then echo python3; else all | tail -n 1; fi ;;
esac
