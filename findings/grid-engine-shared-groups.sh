#!/usr/bin/env bash
# Of two Grid Engines on one host, one kills its job for the memory of the other's job (8.1.9, Debian 12).
#
# One expects that two cells which share nothing, each with ports, spool folder, user and jobs of its own, do not touch
#   each other's jobs. sge_conf(5) asks for group ids that are unused "under UNIX", and says nothing of a second cell.
# What happens: execd gives each job a group of gid_range, counted up from its first, and takes the memory of all
#   processes with this group for the job's. Each package comes with gid_range 65400-65500, so the jobs of two fresh
#   cells have the groups 65400, 65401 ... in turn. A `sleep` with h_vmem=300M dies as soon as the job of the other
#   cell with its group uses 600 MB: exit status 137, "failed 37: qmaster enforced h_rt, h_cpu, or h_vmem limit", and
#   a maxvmem of 600 MB in the accounting. With another gid_range in each cell it ends well, with a maxvmem of 2 MB.
# What it means: give each cell of a host a gid_range of its own (test clusters too, and an old cell next to a new one);
#   else figures of memory are sums over both, and jobs die at random.
#
# Usage: bash grid-engine-shared-groups.sh   (Debian 12, three minutes; needs root, as a cell with a gid_range does;
#   installs nothing)
# It downloads the pinned packages with apt-get, unpacks them in a temporary folder, starts sge_qmaster and sge_execd
# there twice, runs two jobs in each of two rounds, ends all and removes the folder. sge_qmaster listens on every
# network, and accepts this host alone. If apt-get finds no package, `apt-get update` helps. Exit status: 0 it is as
# described, 1 it differs, 2 it could not be asked.
set -euo pipefail; umask 022
((EUID == 0)) || { echo "only root's execd adds a group to its jobs" >&2; exit 2; }
version=8.1.9+dfsg-10
packages=("gridengine-common=$version" "gridengine-client=$version+b1" "gridengine-master=$version+b1"
    "gridengine-exec=$version+b1" libjemalloc2 libmunge2 libtirpc3 libgssapi-krb5-2 libkrb5-3 libk5crypto3
    libkrb5support0 libcom-err2 libkeyutils1 libhwloc15)

dir=$(mktemp -d) pids=()
end() {
    local code=$? i
    for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
        kill "${pids[i]}" 2>/dev/null && wait "${pids[i]}" || true
    done
    ((code < 2)) || tail -n 5 "$dir"/*.log "$dir"/*/spool/qmaster/messages >&2 || true
    rm -rf "$dir"
    exit "$code"
}
trap end EXIT
trap 'exit 2' ERR INT TERM
until_true() { # COMMAND: ask twice a second, for a minute
    local last=$((SECONDS + 60))
    until sh -c "$1" >"$dir/asked.log" 2>&1; do
        ((SECONDS < last)) || { echo "not so within a minute: $1" >&2; return 2; }
        sleep 0.5
    done
}
cd "$dir"; mkdir root; chmod 755 "$dir"
apt-get -qq download "${packages[@]}" 2>apt.log
for deb in *.deb; do dpkg -x "$deb" root; done
programs=$dir/root/usr/lib/gridengine shared=$dir/root/usr/share/gridengine ports=()
libraries=$(echo "$dir"/root/usr/lib/*-linux-gnu)
for port in $(shuf -i 20000-29999 -n 50); do
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || ports+=("$port")
done
export PATH=$programs:$PATH LD_LIBRARY_PATH=$programs:$libraries:${libraries/root\/usr/root} SGE_CELL=default SGE_ND=1
cell() { # NAME: that the next commands speak to
    local first=0
    [[ $1 == *1 ]] || first=2
    export SGE_ROOT=$dir/$1 SGE_QMASTER_PORT=${ports[first + offset]} SGE_EXECD_PORT=${ports[first + offset + 1]}
}
begin() { # NAME GID_RANGE
    cell "$1"
    mkdir -p "$SGE_ROOT"/{bin,lib,utilbin,spool/qmaster/job_scripts,spool/execd,default/common}
    ln -s "$shared/util" "$SGE_ROOT/util"
    for folder in bin lib utilbin; do ln -s "$programs" "$SGE_ROOT/$folder/$("$shared/util/arch")"; done
    echo localhost "$(uname -n)" >"$SGE_ROOT/default/common/host_aliases"
    echo localhost >"$SGE_ROOT/default/common/act_qmaster"
    echo "admin_user              root
default_domain          none
ignore_fqdn             false
spooling_method         classic
spooling_lib            libspoolc
spooling_params         $SGE_ROOT/default/common;$SGE_ROOT/spool/qmaster
binary_path             $SGE_ROOT/bin
qmaster_spool_dir       $SGE_ROOT/spool/qmaster
security_mode           none
listener_threads        2
worker_threads          2
scheduler_threads       1" >"$SGE_ROOT/default/common/bootstrap"
    sed -E "/^#/d; s#^(execd_spool_dir).*#\1 $SGE_ROOT/spool/execd#; s/^(min_[ug]id).*/\1 0/
        s/^(gid_range).*/\1 ${2:-65400-65500}/; s/^(reporting_params).*/\1 accounting=true reporting=false \
flush_time=00:00:01 joblog=false accounting_flush_time=00:00:01/" "$shared/default-configuration" >"$1.conf"
    spool() { "$@" >>spool.log 2>&1; }
    spool spoolinit classic libspoolc "$SGE_ROOT/default/common;$SGE_ROOT/spool/qmaster" init
    spool spooldefaults.bin configuration "$dir/$1.conf"
    spool spooldefaults.bin complexes "$shared/util/resources/centry"
    spool spooldefaults.bin usersets "$shared/util/resources/usersets"
    spool spooldefaults.bin managers root
    sge_qmaster >"$1-qmaster.log" 2>&1 </dev/null & pids+=($!)
    until_true "qconf -sm"
    qconf -as localhost >asked.log 2>&1
    printf '%s\n' 'hostname localhost' 'load_scaling NONE' 'complex_values NONE' 'user_lists NONE' 'xuser_lists NONE' \
        'projects NONE' 'xprojects NONE' 'usage_scaling NONE' 'report_variables NONE' >host
    qconf -Ae host >asked.log 2>&1
    printf 'qname batch\nhostlist localhost\nseq_no 0\nload_thresholds NONE\nsuspend_thresholds NONE\nnsuspend 1
suspend_interval 00:05:00\npriority 0\nmin_cpu_interval 00:05:00\nprocessors UNDEFINED\nqtype BATCH\nckpt_list NONE
pe_list NONE\nrerun FALSE\nslots 4\ntmpdir /tmp\nshell /bin/sh\nprolog NONE\nepilog NONE\nshell_start_mode unix_behavior
starter_method NONE\nsuspend_method NONE\nresume_method NONE\nterminate_method NONE\nnotify 00:00:10\nowner_list NONE
user_lists NONE\nxuser_lists NONE\nsubordinate_list NONE\ncomplex_values NONE\nprojects NONE\nxprojects NONE
calendar NONE\ninitial_state default\n' >queue
    for limit in rt cpu fsize data stack core rss vmem; do printf '%s INFINITY\n' "s_$limit" "h_$limit"; done >>queue
    qconf -Aq queue >asked.log 2>&1
    sge_execd >"$1-execd.log" 2>&1 </dev/null & pids+=($!)
    until_true "qstat -f | grep batch@ | grep -v -- -NA-"
}
round() { # NAME GID_RANGE_2: a small job in the first cell, a large one in the second; prints how the small one ended
    offset=$((4 * round_number++))
    begin "${1}1" ''
    begin "${1}2" "$2"
    cell "${1}1"
    qsub -terse -N small -b y -o /dev/null -j y -l h_vmem=300M sleep 70 >asked.log
    until_true "qstat | grep ' r '"
    cell "${1}2"
    qsub -terse -N large -b n -o /dev/null -j y large.sh >asked.log
    cell "${1}1"
    while ! qacct -j small >asked.log 2>&1; do sleep 1; done
    qacct -j small | awk '
        $1 == "exit_status" { status = $2 }
        $1 == "maxvmem" { size = $2 + 0 > 300 && $2 ~ /MB/ ? "above 300 MB" : "below 300 MB" }
        END { print status, size }'
}
echo '#!/bin/sh
exec python3 -c "x = bytearray(600 * 2**20); import time; time.sleep(60)"' >large.sh
round_number=0
expected='with the groups of the package in both: 137 above 300 MB
with groups of its own in each:         0 below 300 MB'
round same '' >seen1
round own 65200-65300 >seen2
seen="with the groups of the package in both: $(<seen1)
with groups of its own in each:         $(<seen2)"
printf '%s\n' "$(qstat -help | head -n 1)" "$seen"
if [[ $seen == "$expected" ]]; then echo "as described"; else printf '%s\n' "DIFFERS from this:" "$expected"; exit 1; fi
