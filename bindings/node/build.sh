#!/bin/sh
# Builds the addon: prebuilt/linux-x64/txos.node. N-API is stable: one build serves every Node.js from 18 on.
#
#   build.sh [DIRECTORY]     where to put it (prebuilt/linux-x64 beside this script)
#
# NODE_INCLUDE names the directory of node_api.h, if it is not that of `node`.
set -eu

here=$(dirname "$(readlink -f "$0")")
to=${1:-$here/prebuilt/linux-x64}
include=${NODE_INCLUDE:-}
if [ -z "$include" ]; then
    prefix=$(dirname "$(dirname "$(node -p process.execPath)")")
    for dir in "$prefix/include/node" /usr/include/node /usr/include/nodejs/src; do
        if [ -e "$dir/node_api.h" ]; then
            include=$dir
            break
        fi
    done
fi
if [ -z "$include" ]; then
    echo "build.sh: no node_api.h: install the headers of Node.js (Debian: libnode-dev), or set NODE_INCLUDE" >&2
    exit 1
fi
mkdir -p "$to"
cc -std=gnu11 -O2 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -I"$include" \
    -I"$here/../../crates/txos-runtime/include" -o "$to/txos.node" "$here/src/addon.c" -ldl -lpthread
