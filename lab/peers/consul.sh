#!/bin/bash
# consul.sh FOLDER
#
# Builds Consul from its published module: some six minutes of one core. Its own `main` is not meant to be installed from there, so
# ours is that file in a module that takes Consul's list of versions.
# FOLDER/bin/consul is the program; FOLDER/versions records what was built.
set -euo pipefail

folder=$1
version=v1.22.3
export GOFLAGS="-modcacherw -buildvcs=false" GOWORK=off
mkdir -p "$folder/source" "$folder/bin"
cd "$folder/source"
printf 'module peer\n' > go.mod
source=$(go mod download -json "github.com/hashicorp/consul@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
cp "$source/main.go" "$source/go.mod" "$source/go.sum" .
chmod u+w ./*
# Modules that stand beside it in its repository are published, too, in the versions that it names.
sed -i -e 's/^module .*/module peer/' -e '/^replace (/,/^)/d' go.mod
printf '\nrequire github.com/hashicorp/consul %s\n' "$version" >> go.mod
go build -mod=mod -v -ldflags "-s -w" -o "$folder/bin/consul" .
rm -rf "$folder/source"
echo "consul $version" > "$folder/versions"
