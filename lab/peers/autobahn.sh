#!/bin/bash
# autobahn.sh FOLDER
#
# Installs the Autobahn WebSocket suite, which runs on Python 2.7 and nothing newer. That comes from the last Debian release
# that had it, unpacked into FOLDER/python; FOLDER/wstest then runs the suite. FOLDER/versions records what was installed.
set -euo pipefail

folder=$1
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$folder"
mkdir -p "$folder/site" "$folder/boot" "$folder/wheels"
"$here/debroot.sh" "$folder/python" bullseye python2.7

# The loader by its own name: its link leads to the root of the file system, which is another Debian's.
loader=$(ls "$folder"/python/usr/lib/x86_64-linux-gnu/ld-2.*.so)
cat > "$folder/python2" <<END
#!/bin/sh
export PYTHONHOME='$folder/python/usr' PYTHONPATH='$folder/boot:$folder/site'
exec '$loader' --library-path '$folder/python/usr/lib/x86_64-linux-gnu' '$folder/python/usr/bin/python2.7' "\$@"
END
# What it starts, it starts the same way; and packages that share a name are found.
cat > "$folder/boot/sitecustomize.py" <<END
import site, sys
sys.executable = '$folder/python2'
site.addsitedir('$folder/site')
END
cat > "$folder/wstest" <<END
#!/bin/sh
exec '$folder/python2' -W ignore -c 'from autobahntestsuite import wstest; wstest.run()' "\$@"
END
chmod +x "$folder/python2" "$folder/wstest"

# The last pip for Python 2.7, fetched by this machine's own.
python3 -m pip download --quiet --no-deps --dest "$folder/wheels" pip==20.3.4
install=("$folder/python2" "$folder/wheels/pip-20.3.4-py2.py3-none-any.whl/pip" install --no-input
  --disable-pip-version-check --prefer-binary --no-build-isolation --target "$folder/site")
export PIP_FIND_LINKS=
"${install[@]}" setuptools==44.0.0 wheel==0.37.1
# The versions that newer releases of the suite name.
"${install[@]}" --upgrade txaio==2.1.0 incremental==16.10.1 pyOpenSSL==19.1.0 cryptography==3.3.2 Twisted==19.10.0 \
  zope.interface==4.6.0 jinja2==2.11.3 markupsafe==1.1.1 Werkzeug==1.0.1 klein==17.10.0 service_identity==18.1.0 \
  six==1.16.0 autobahn==0.10.9
# Not all that these two ask for is needed, or has a form for Python 2.7 that needs no compiler.
"${install[@]}" --no-deps autobahntestsuite==0.8.2 unittest2==1.1.0 traceback2==1.4.0 linecache2==1.0.0
"$folder/wstest" --help > /dev/null
sed -n 's/^python2.7 /python2.7 /p' "$folder/python.state/versions" > "$folder/versions"
echo "autobahntestsuite 0.8.2" >> "$folder/versions"
echo done
