#!/bin/sh
# Checks the files of this folder by the tools that are there: promtool, amtool, docker compose, kubernetes-validate, a
# Python with the package.
set -eu
cd "$(dirname "$0")"

have() { command -v "$1" > /dev/null 2>&1; }

if have promtool; then
    promtool check rules alerts.yml
    promtool test rules alerts_test.yml
    promtool check config prometheus.yml
else
    echo "promtool is not installed (Debian package prometheus): rules not checked" >&2
fi
if have amtool; then
    amtool check-config alertmanager.yml
else
    echo "amtool is not installed (Debian package prometheus-alertmanager): alertmanager.yml not checked" >&2
fi
if docker compose version > /dev/null 2>&1; then
    docker compose -f compose.yaml config --quiet
elif have docker-compose; then
    docker-compose -f compose.yaml config --quiet
else
    echo "docker compose is not installed: compose.yaml not checked" >&2
fi
if have kubernetes-validate; then
    kubernetes-validate --strict --quiet kubernetes.yaml
else
    echo "kubernetes-validate is not installed (PyPI): kubernetes.yaml not checked" >&2
fi
if have kstream-worker; then
    kstream-worker check --offline --config config.example.toml
fi
