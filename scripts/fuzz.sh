#!/bin/sh
# Runs every fuzz target for SECONDS (60); further arguments go to the fuzzer (fuzz/run says which).
set -eu
exec "$(dirname "$0")/../fuzz/run" "$@"
