#!/bin/bash
# debroot.sh ROOT SUITES PACKAGE...
#
# Unpacks packages of other Debian suites (a comma list, the last one is the target) into ROOT, with every
# library they need down to libc, without touching the system. Programs are then run by ROOT's own loader:
#   ROOT/usr/lib64/ld-linux-x86-64.so.2 --library-path ROOT/usr/lib/x86_64-linux-gnu ROOT/usr/sbin/haproxy
#
# The archive's address is taken from this machine's own apt sources. ROOT.state keeps the package lists and the
# downloaded archives; ROOT.state/versions records what was unpacked, one "package version" a line.
set -euo pipefail

root=$1 suites=$2
shift 2
target=${suites##*,}
state=$root.state
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep 'debian$' | sed -n 1p)
[ -n "$mirror" ] || { echo "no Debian archive among this machine's apt sources" >&2; exit 1; }

rm -rf "$root"
mkdir -p "$root" "$state/lists/partial" "$state/cache/archives/partial"
: > "$state/sources.list"
: > "$state/status"
for suite in ${suites//,/ }; do
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >> "$state/sources.list"
done

apt=(apt-get -q
  -o Dir::State::Lists="$state/lists" -o Dir::Cache="$state/cache"
  -o Dir::Etc::SourceList="$state/sources.list" -o Dir::Etc::SourceParts=/dev/null
  -o Dir::State::Status="$state/status" -o Debug::NoLocking=1 -o APT::Sandbox::User=root)

echo "reading the package lists of $suites"
"${apt[@]}" update
echo "fetching $* and what they need"
rm -f "$state"/cache/archives/*.deb
"${apt[@]}" -t "$target" --no-install-recommends -y --download-only install "$@"

for dir in bin sbin lib lib64; do
  mkdir -p "$root/usr/$dir"
  [ -e "$root/$dir" ] || ln -s "usr/$dir" "$root/$dir"
done
: > "$state/versions"
for deb in "$state"/cache/archives/*.deb; do
  dpkg-deb -f "$deb" Package Version | sed 's/^[^:]*: //' | paste -d' ' - - >> "$state/versions"
  echo "unpacking ${deb##*/}"
  dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink -C "$root"
done
rm -rf "$state/lists" "$state/cache"
echo done
