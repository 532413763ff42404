#!/bin/sh
# The discovery script of elastic trainings: the addresses of the ranks' pods that are ready, one slot each.
# Without any, or when the name service does not answer, it fails, and the training keeps the hosts it knows.
set -eu
service=${1:-floodmark-ranks}
found=$(getent ahostsv4 "$service") || { echo "$service: no pod is ready" >&2; exit 1; }
echo "$found" | awk '$2 == "STREAM" { print $1 ":1" }' | sort -u
