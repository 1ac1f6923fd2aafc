#!/bin/bash
# Fetches a package of Debian in one version and unpacks it, with all that is fetched with it, into FOLDER. Nothing is
# installed. Its release need not be this machine's: apt gets sources, lists and a cache of its own, and checks
# signatures. Exits with 3 where the archive has no such version, or cannot be reached.
#
#   debian.sh FOLDER NAME VERSION download|install [SUITE]
#
# `install` fetches its dependencies too, from SUITE first, if there is one.
set -euo pipefail
folder=$1 name=$2 version=$3 command=$4 suite=${5:-}
apt=${folder%/*}/apt
packages=$apt/${folder##*/}

# The machine's mirror, not that of security updates.
# shellcheck disable=SC2016 # apt-get puts it in.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | awk '!/security/ && !found++')
[[ -n $mirror ]] || { echo "apt-get knows no archive of packages"; exit 1; }
rm -rf "$packages/unpacked"
mkdir -p "$apt/lists/partial" "$packages/partial"
# Debian signs these suites with a key that bookworm has as well.
cat >"$apt/debian.sources" <<END
Types: deb
URIs: $mirror
Suites: trixie trixie-backports
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
# Apt's usual user cannot reach every place that we build in.
cat >"$apt/apt.conf" <<END
Dir::Etc::sourcelist "$apt/debian.sources";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/nothing";
Dir::Cache "$apt";
Dir::Cache::archives "$packages";
Acquire::Languages "none";
Acquire::Retries "3";
APT::Sandbox::User "root";
END
: >"$apt/nothing"
cd "$packages"
apt-get -qq --config-file="$apt/apt.conf" update || true
apt-get -qq --config-file="$apt/apt.conf" "$command" "$name=$version" ${suite:+--target-release="$suite"} \
    --yes --no-install-recommends --download-only || exit 3
for package in *.deb; do dpkg-deb --extract "$package" unpacked; done
# Renamed once it is complete.
mv unpacked "$folder"
rm -rf "$packages"
