#!/bin/sh
# Usage: deploy/release/build.sh [DIRECTORY [wheels]]
# Builds all that is published into DIRECTORY (dist/), from the files that git tracks, as they are now:
# the sdist and the wheel, the plugin's wheel, a deb and an rpm for each architecture, an image for both,
# the Helm chart, the mixin, boards to import, a list of all that the packages bring (CycloneDX) and the
# checksums.  Two builds of a commit are equal byte for byte: all times are that of the commit, or
# $SOURCE_DATE_EPOCH.  The image is, as long as Debian's archive serves the same.
# $STAGEWATCH_REPOSITORY is the address of the project, for the metadata of the wheels, and
# $STAGEWATCH_IMAGE is that of the image without its tag, for the chart.
# `make release` installs what this needs: .venv-release, dpkg-deb, rpmbuild, compilers, buildah.
set -eu
umask 022
root=$(cd "$(dirname "$0")/../.." && pwd)
bin=$root/.venv-release/bin
dist=$(realpath -m "${1:-$root/dist}")
cd "$root"
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
unset PYTHONPATH # what lies there would be in the list of parts
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# Nothing that lies about in the checkout gets into a package.  Changes that are not committed do.
mkdir "$work/source"
git update-index --refresh -q >/dev/null || true # or a new time alone is a change to what follows
changed=$(git stash create)
git archive "${changed:-HEAD}" | tar -x -C "$work/source"
cd "$work/source"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
echo "release: stagewatch $version, $(git -C "$root" rev-parse --short HEAD)${changed:+ with changes}"
mkdir -p "$dist"
rm -f "$dist"/stagewatch* "$dist/SHA256SUMS"

# A tar archive of a directory, with nothing in it of who packed it, and when.
pack() {
    tar --sort=name --format=gnu --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
        --mtime="@$SOURCE_DATE_EPOCH" -C "$1" -c "$2"
}

plugin=exporters/stagewatch_nccl
# Only the forge that publishes knows where the project lives.
for metadata in ${STAGEWATCH_REPOSITORY:+pyproject.toml $plugin/pyproject.toml}; do
    printf '\n[project.urls]\nSource = "%s"\nIssues = "%s/issues"\n' \
        "$STAGEWATCH_REPOSITORY" "$STAGEWATCH_REPOSITORY" >> "$metadata"
done
"$bin/hatchling" build -t sdist -t wheel -d "$dist" >/dev/null 2>&1
for machine in x86_64 aarch64; do
    (cd $plugin && CC=$machine-linux-gnu-gcc "$bin/hatchling" build -t wheel -d "$dist" >/dev/null 2>&1)
done
"$bin/twine" check --strict "$dist"/*.whl "$dist"/*.tar.gz
[ "${2:-}" != wheels ] || exit 0

# What a machine gets: an environment of its own in /opt/stagewatch, which any Python from 3.10 on runs,
# units, and options.  Packages come as wheels of Python 3.10; newer ones run what is compiled for its
# stable interface, and go without the rest, which only makes jinja2 and yaml faster.
tree() {
    to=$work/$1
    home=$to/opt/stagewatch
    packages=$home/lib/python3/site-packages
    mkdir -p "$packages" "$home/bin" "$to/usr/bin"
    set -- --quiet --target "$packages" --python-version 3.10 --python-platform "$2" --link-mode copy
    "$bin/uv" pip install "$@" --only-binary :all: --require-hashes -r deploy/requirements.lock
    # Without uv's cache, which knows an earlier wheel of the same name.
    "$bin/uv" pip install "$@" --no-cache --no-deps --no-index --find-links "$dist" "stagewatch==$version"
    mv "$packages/bin/py-spy" "$home/bin"
    rm -rf "${packages:?}/bin" "$packages/.lock" "$packages"/stagewatch-*/uv_cache.json
    sed -i /uv_cache.json/d "$packages"/stagewatch-*/RECORD
    printf 'home = /usr/bin\ninclude-system-site-packages = false\n' > "$home/pyvenv.cfg"
    ln -s /usr/bin/python3 "$home/bin/python"
    for minor in 10 11 12 13 14 15; do ln -s python3 "$home/lib/python3.$minor"; done
    install -m 755 deploy/release/launch.py "$home/bin/stagewatch"
    ln -s ../../opt/stagewatch/bin/stagewatch "$to/usr/bin/stagewatch"
    install -D -m 644 -t "$home/share" README.md
    install -D -m 755 -t "$home/share/slurm" deploy/slurm/*.sh
    install -D -m 644 -t "$home/share/slurm" deploy/slurm/*.conf deploy/slurm/*.md
    find deploy/systemd \( -name '*.service' -o -name '*.mount' -o -name '*.socket' \) \
        -exec install -D -m 644 -t "$to/usr/lib/systemd/system" {} +
    install -D -m 644 deploy/systemd/stagewatch.sysusers.conf "$to/usr/lib/sysusers.d/stagewatch.conf"
    install -D -m 644 deploy/systemd/stagewatch.tmpfiles.conf "$to/usr/lib/tmpfiles.d/stagewatch.conf"
    install -D -m 644 deploy/systemd/stagewatch.preset \
        "$to/usr/lib/systemd/system-preset/50-stagewatch.preset"
    install -D -m 644 -t "$to/etc/stagewatch" deploy/systemd/*.env
    install -D -m 644 LICENSE "$to/usr/share/doc/stagewatch/copyright"
    chmod -R u=rwX,go=rX "$to"
    find "$to" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

filled() { sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$1/" "$2"; }

# One script of a package: what to do is said once for both kinds, when is each one's own.
# shellcheck disable=SC2016 # $1 is the script's
script() { cat deploy/release/maintain.sh; printf '%s\n' "$1"; }

deb() {
    control=$work/$1/DEBIAN
    mkdir "$control"
    filled "$1" deploy/release/control > "$control/control"
    (cd "$work/$1" && find etc -type f -printf '/%p\n' | sort) > "$control/conffiles"
    script before_installing > "$control/preinst"
    script '[ "$1" != configure ] || installed' > "$control/postinst"
    script 'case $1 in remove) before_removing ;; upgrade) forget_compiled ;; esac' \
        > "$control/prerm"
    script 'case $1 in remove) removed ;; purge) purged ;; esac' > "$control/postrm"
    chmod 755 "$control"/p*
    find "$control" -exec touch --date="@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz --build "$work/$1" "$dist" >/dev/null
    rm -r "$control"
}

rpm() {
    spec=$work/$1.spec
    {
        filled "$2" deploy/release/stagewatch.spec
        printf '\n%%pre\n' && script before_installing
        printf '\n%%post\n' && script installed
        printf '\n%%preun\n' && script '[ "$1" != 0 ] || before_removing'
        printf '\n%%postun\n' && script '[ "$1" != 0 ] || removed'
    } > "$spec"
    rpmbuild --quiet -bb --target "$2" --define "tree $work/$1" --define "_rpmdir $dist" \
        --define "_topdir $work/rpm" --define "_build_name_fmt %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm" \
        --define "_buildhost localhost" --define "use_source_date_epoch_as_buildtime 1" \
        --define "clamp_mtime_to_source_date_epoch 1" \
        --define "_build_id_links none" "$spec" >/dev/null
}

# Debian's packages are unpacked and not installed, so that no architecture but this one has to run; and
# the agents as the debs have them.  Slurm's commands are some 6 MB of it.
# shellcheck disable=SC2016 # $1 is the hook's
image() {
    for architecture in amd64 arm64; do
        mmdebstrap --quiet --variant=extract --architectures=$architecture --components=main \
            --include=base-files,coreutils,dash,python3,sed,slurm-client,util-linux --skip=output/dev \
            --extract-hook='rm "$1/etc/hostname" "$1/etc/resolv.conf"' bookworm - > "$work/system.tar"
        container=$(store from --arch $architecture scratch)
        store add --quiet "$container" "$work/system.tar" /
        store add --quiet "$container" "$work/$architecture/opt" /opt
        store add --quiet "$container" "$work/$architecture/usr/bin" /usr/bin
        store add --quiet --chmod 644 "$container" deploy/docker/users/* /etc
        store add --quiet --chmod 755 "$container" deploy/docker/entrypoint.sh \
            /usr/local/bin/stagewatch-entrypoint
        mkdir -p "$work/state"
        store add --quiet --chown 9947:9947 "$container" "$work/state" /var/lib/stagewatch
        store config --arch $architecture --user stagewatch --volume /var/lib/stagewatch \
            --env PYTHONUNBUFFERED=1 --env PYTHONDONTWRITEBYTECODE=1 --env PATH=/usr/sbin:/usr/bin:/sbin:/bin \
            --port 9947/tcp --port 9948/tcp --port 9949/tcp --cmd node \
            --entrypoint '["/usr/local/bin/stagewatch-entrypoint"]' "$container"
        store commit --quiet --timestamp "$SOURCE_DATE_EPOCH" --manifest stagewatch "$container"
    done
    store manifest push --quiet --all stagewatch "oci:$work/oci:$version"
}

store() { buildah --root "$work/store" --runroot "$work/run" --storage-driver vfs "$@"; }

tree amd64 x86_64-manylinux2014
tree arm64 aarch64-manylinux2014
image >/dev/null
pack "$work/oci" . > "$dist/stagewatch-image-$version.tar"
deb amd64 && rpm amd64 x86_64
deb arm64 && rpm arm64 aarch64

"$bin/cyclonedx-py" environment --output-reproducible --pyproject pyproject.toml \
    --output-file "$dist/stagewatch-$version.cdx.json" "$work/amd64/opt/stagewatch/bin/python"

"$work/amd64/opt/stagewatch/bin/python" deploy/release/content.py "$work/content"
pack "$work/content" stagewatch | gzip -9n > "$dist/stagewatch-$version.tgz"
for archive in mixin boards; do
    pack "$work/content" stagewatch-$archive | gzip -9n > "$dist/stagewatch-$archive-$version.tar.gz"
done

(cd "$dist" && sha256sum -- * > SHA256SUMS)
