#!/usr/bin/env bash
# Make a base image from Debian's packages, where no registry of images can be reached: tools/debian_base.sh NAME
#
# Needs root, debootstrap and docker. The certificates of this machine come along, as pip asks for them in a build.
set -euo pipefail
name=${1:?name of the image}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$root" > /dev/null
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
rm -rf "$root"/var/cache/apt "$root"/var/lib/apt/lists "$root"/usr/share/{doc,locale,man}
tar -C "$root" -c . | docker import - "$name"
