#!/bin/sh
# Evaluates the rules against the store: `vmalert.sh STORE_URL ALERTMANAGER_URL [RULES_DIRECTORY]`.
# Recorded series are written back, and the state of alerts is read again after a restart.
set -eu
store=$1
alertmanager=$2
rules=${3:-$(dirname "$0")/../../alerts}
exec vmalert -datasource.url="$store" -remoteWrite.url="$store" -remoteRead.url="$store" \
    -notifier.url="$alertmanager" -rule="$rules/*.rules.yaml" -evaluationInterval=5s \
    -httpListenAddr="${VMALERT_LISTEN:-127.0.0.1:8880}"
