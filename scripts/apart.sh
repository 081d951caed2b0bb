#!/usr/bin/env bash
# apart.sh COMMAND… - runs it as on a host of its own, as `lctl` speaks of every mount and server that a host has, and addresses are
# a host's. Needs root.
set -eu
exec unshare --mount --net bash -euc '
  ip link set lo up
  for d in /run/nacre /run/netns; do mkdir -p "$d"; mount -t tmpfs none "$d"; done
  exec "$@"' apart "$@"
