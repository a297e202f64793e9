#!/usr/bin/env bash
# What some tests need beside Python: a browser and its driver for the report page, iproute2 for networks, Slurm with
# its accounting and the database that this is in (72 MB installed).
# Tests skip without them; CI installs them first so that nothing skips there.
set -euo pipefail
packages=(chromium chromium-driver iproute2
  slurmctld slurmd slurm-client munge slurmdbd mariadb-server-core mariadb-client-core)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}"
