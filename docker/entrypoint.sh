#!/bin/sh
# Installs what the code in /app asks for, and becomes kopf: signals go to it directly.
# The installed goes beside the code of the image, which the user of the container cannot change.
# With no arguments, it runs /app/main.py.
set -eu

app=${KOPF_APP:-/app}
packages=${KOPF_PACKAGES:-/tmp/kopf-packages}

install() {
    pip install --quiet --disable-pip-version-check --upgrade --target "$packages" "$@"
    export PYTHONPATH="$packages${PYTHONPATH:+:$PYTHONPATH}"
}

if [ -f "$app/requirements.txt" ]; then
    install -r "$app/requirements.txt"
fi
if [ -f "$app/pyproject.toml" ]; then
    install "$app/"
fi

if [ $# -gt 0 ]; then
    exec kopf "$@"
elif [ -f "$app/main.py" ]; then
    exec kopf run -v "$app/main.py"
fi

cat >&2 <<'USAGE'
There is nothing to run. Either mount your code to /app/main.py, or say what to run:

  docker run -v ./handlers.py:/app/main.py kopf
  docker run -v ./handlers.py:/src/handlers.py kopf run -v /src/handlers.py
USAGE
exit 1
