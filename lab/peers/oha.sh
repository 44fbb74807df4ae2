#!/bin/bash
# oha.sh FOLDER
#
# Installs oha with HTTP/3 from its published source, with one change: when a run by HTTP/3 is over, oha waits until each connection
# has ended, which those that it asked do after half a minute of silence, and prints nothing before that. Here it lets go of them at once.
# FOLDER/bin/oha is the program; FOLDER/versions records what was installed.
set -euo pipefail

folder=$1
version=1.16.0
mkdir -p "$folder/fetch/src"
# A package that only names oha has cargo fetch its source, checked by the registry's checksum.
printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\noha = "=%s"\n[workspace]\n' \
  "$version" > "$folder/fetch/Cargo.toml"
: > "$folder/fetch/src/lib.rs"
manifest=$(cargo metadata --quiet --format-version 1 --filter-platform x86_64-unknown-linux-gnu \
  --manifest-path "$folder/fetch/Cargo.toml" |
  python3 -c 'import json, sys; print(next(p["manifest_path"] for p in json.load(sys.stdin)["packages"] if p["name"] == "oha"))')
cp -r "${manifest%/*}" "$folder/source"
rm -rf "$folder/fetch"
chmod -R u+w "$folder/source"
# It stands in another tree of sources, to which it does not belong.
printf '\n[workspace]\n' >> "$folder/source/Cargo.toml"
grep -q 'let _ = http3_driver.await;' "$folder/source/src/client_h3.rs"
sed -i 's/let _ = http3_driver.await;/http3_driver.abort();/' "$folder/source/src/client_h3.rs"
# The last steps of optimizing take longer than the rest, and it is not the generator that is measured.
export CARGO_TARGET_DIR=$folder/target CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
cargo install --locked --root "$folder" --features http3 --path "$folder/source"
rm -rf "$folder/target" "$folder/source"
echo "oha $version with http3, without its wait at the end" > "$folder/versions"
echo done
