#!/usr/bin/env bash
# qsub -w v, which assumes that all queues are empty, refuses an exclusive request while any job runs (8.1.9, Debian 12).
#
# One expects that `qsub -w v -l exclusive=true` says whether the job could ever run: by qsub(1) it reports on "a dry
#   scheduling run on an empty cluster", and -w p on the cluster as it is.
# What happens: true of slots and of consumable resources: with all of ngpus=2 in use a request of both is verified. Not
#   of a resource whose relation is EXCL: while another job, which asks for nothing, runs on the only host, the answer is
#   "cannot run at host ... because exclusive resource (exclusive) is already in use", "verification: no suitable
#   queues", exit status 1, and nothing else of the request is looked at. Submitted without -w the job waits, and runs.
# What it means: a script that asks -w v before it submits refuses whole-node jobs on every busy cluster. Take
#   this answer for "not known".
#
# Usage: bash qsub-verify-exclusive.sh   (Debian 12, under a minute; needs root, as a cell whose jobs run does; installs
#   nothing)
# It downloads the pinned packages with apt-get, unpacks them in a temporary folder, starts sge_qmaster and sge_execd
# there, runs two jobs, ends all and removes the folder. sge_qmaster listens on every network, and accepts this host
# alone. If apt-get finds no package, `apt-get update` helps. Exit status: 0 it is as described, 1 it differs, 2 it
# could not be asked.
set -euo pipefail; umask 022
((EUID == 0)) || { echo "only root's execd runs jobs here" >&2; exit 2; }
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
    ((code < 2)) || tail -n 5 "$dir"/*.log "$dir"/spool/qmaster/messages >&2 || true
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
export SGE_ROOT=$dir SGE_QMASTER_PORT=${ports[0]} SGE_EXECD_PORT=${ports[1]}
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
    s/^(gid_range).*/\1 65300-65350/" "$shared/default-configuration" >cell.conf
spool() { "$@" >>spool.log 2>&1; }
spool spoolinit classic libspoolc "$SGE_ROOT/default/common;$SGE_ROOT/spool/qmaster" init
spool spooldefaults.bin configuration "$dir/cell.conf"
spool spooldefaults.bin complexes "$shared/util/resources/centry"
spool spooldefaults.bin usersets "$shared/util/resources/usersets"
spool spooldefaults.bin managers root
sge_qmaster >qmaster.log 2>&1 </dev/null & pids+=($!)
until_true "qconf -sm"
{ qconf -sc; echo 'ngpus ngpus INT <= YES YES 0 0'; echo 'exclusive excl BOOL EXCL YES YES 0 0'; } >complexes
qconf -Mc complexes >asked.log 2>&1
qconf -as localhost >asked.log 2>&1
printf '%s\n' 'hostname localhost' 'load_scaling NONE' 'complex_values ngpus=2,exclusive=true' 'user_lists NONE' 'xuser_lists NONE' \
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
sge_execd >execd.log 2>&1 </dev/null & pids+=($!)
until_true "qstat -f | grep batch@ | grep -v -- -NA-"
ask() { # RESOURCE: what -w v says of it, without the number of the job
    local said
    said=$(qsub -w v -b y -l "$1" sleep 1 2>&1) || true
    printf '%-16s %s\n' "$1" "$(sed -nE 's/.*because (.*)/\1/p; s/.*(found suitable queue).*/\1/p' <<<"$said" | head -n 1)"
}
run() { # OPTIONS: a job that runs until it is deleted; prints its number once it runs
    local job
    job=$(qsub -terse -b y -o /dev/null -j y "$@" sleep 600)
    until_true "qstat | grep -q '^ *$job .* r '"
    echo "$job"
}
expected='idle:
exclusive=true   found suitable queue
both GPUs in use, by a job that asks for nothing else:
ngpus=2          found suitable queue
exclusive=true   exclusive resource (exclusive) is already in use
submitted without -w: waits, then runs'
seen="idle:
$(ask exclusive=true)
both GPUs in use, by a job that asks for nothing else:"
job=$(run -l ngpus=2)
seen+="
$(ask ngpus=2)
$(ask exclusive=true)"
waits=$(qsub -terse -b y -o /dev/null -j y -l exclusive=true sleep 600)
until_true "qstat | grep -q '^ *$waits .* qw '"
qdel "$job" >asked.log
until_true "qstat | grep -q '^ *$waits .* r '"
seen+="
submitted without -w: waits, then runs"
qdel "$waits" >asked.log
until_true '! qstat | grep -q sleep'
printf '%s\n' "$(qstat -help | head -n 1)" "$seen"
if [[ $seen == "$expected" ]]; then echo "as described"; else printf '%s\n' "DIFFERS from this:" "$expected"; exit 1; fi
