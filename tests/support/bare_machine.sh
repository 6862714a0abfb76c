#!/usr/bin/env bash
# The machine that README.md names: a bare Debian 12 with Python, make and git in a folder, and a command there, on a
# clone of this checkout, as an ordinary user or as root, with an empty HOME.
#   bare_machine.sh FOLDER USER COMMAND      bare_machine.sh .cache/bare ada 'make demo'
# FOLDER/base is made once. FOLDER/USER is a new copy for each user; with KEEP=1 the copy of the last command.
# Nothing of this machine is seen inside but its package index. Root alone can do this; it needs apt-get.
set -euo pipefail
folder=$(realpath -m "$1") user=$2 command=$3
base=$folder/base root=$folder/$user checkout=$(git rev-parse --show-toplevel)
home=/home/$user
[[ $user == root ]] && home=/root
project=$home/project

make_base() {
    command -v mmdebstrap >/dev/null || {
        apt-get -qq update
        apt-get -qq install -y --no-install-recommends mmdebstrap >/dev/null
    }
    local sources=(/etc/apt/sources.list.d/*.sources)
    [[ -e ${sources[0]} ]] || sources=(/etc/apt/sources.list)
    rm -rf "$base"
    mmdebstrap --quiet --variant=minbase --include=python3,python3-venv,make,git,ca-certificates \
        bookworm "$base" "${sources[0]}"
    touch "$base/.made"
}

# pip's configuration and the folders that it names, certificates, and how names are resolved
share_package_index() {
    local path
    for path in /etc/pip.conf /etc/xdg/pip /etc/ssl/certs/ca-certificates.crt /etc/hosts /etc/resolv.conf \
        $(python3 -m pip config list 2>/dev/null | grep -oE "(file://)?/[^ '\"]+" | sed 's,^file://,,; s,/simple$,,' | sort -u); do
        [[ -e $path ]] || continue
        mkdir -p "$root$(dirname "$path")"
        cp -a --dereference --remove-destination "$path" "$root$(dirname "$path")/"
    done
}

if [[ ${KEEP:-} != 1 ]]; then
    mkdir -p "$folder"
    exec 9>"$folder/lock"
    flock 9
    [[ -e $base/.made ]] || make_base
    exec 9>&-
    rm -rf "$root"
    cp -a "$base" "$root"
    share_package_index
    [[ $user == root ]] || chroot "$root" useradd --create-home --shell /bin/bash "$user"
    git clone --quiet "$checkout" "$root$project"
    chroot "$root" chown -R "$user:" "$project"
fi
mapfile -t index < <(env | grep -E '^(PIP_|UV_|SSL_|REQUESTS_|HTTPS?_|NO_)[A-Z_]*=[^ ]*$')
# shellcheck disable=SC2016 # the inner shells expand them
exec env -i HOME="$home" PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 TERM=dumb "${index[@]}" \
    unshare --mount --pid --fork --kill-child bash -euc '
        root=$1 user=$2 project=$3 command=$4
        mount -t proc proc "$root/proc"
        mount -t sysfs sys "$root/sys"
        mount --rbind /dev "$root/dev"
        mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
        exec chroot "$root" setpriv --reuid="$user" --regid="$user" --init-groups \
            bash -euc "cd \"\$1\"; eval \"\$2\"" bash "$project" "$command"' bash "$root" "$user" "$project" "$command"
