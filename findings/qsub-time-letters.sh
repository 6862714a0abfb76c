#!/usr/bin/env bash
# qsub takes a letter behind a time for a multiplier of seconds: h_rt=90m is 90,000,000 s (Grid Engine 8.1.9, Debian 12).
#
# One expects that `-l h_rt=90m` asks for 90 minutes, or is refused.
# What happens: it is accepted. m multiplies by 1,000,000 and M by 1,048,576, as of memory: 90m is 1,041 days. A value
#   that ends in s, h or min is refused. With colons it is hours, minutes and seconds, and a number alone is seconds.
# What it means: write 1:30:00. A job with 90m has no walltime that ends it; `qstat -j` shows the seconds.
#
# Usage: bash qsub-time-letters.sh   (Debian 12, under a minute; needs no root, installs nothing)
# It downloads the pinned packages with apt-get, unpacks them in a temporary folder, starts sge_qmaster there, submits
# held jobs to no queue, ends it and removes the folder. sge_qmaster listens on every network, and accepts this host
# alone. If apt-get finds no package, `apt-get update` helps. Exit status: 0 it is as described, 1 it differs, 2 it
# could not be asked.
set -euo pipefail; umask 077
version=8.1.9+dfsg-10
packages=("gridengine-common=$version" "gridengine-client=$version+b1" "gridengine-master=$version+b1"
    libjemalloc2 libmunge2 libtirpc3 libgssapi-krb5-2 libkrb5-3 libk5crypto3 libkrb5support0 libcom-err2 libkeyutils1)

dir=$(mktemp -d) pid=''
end() {
    local code=$?
    [[ ! $pid ]] || { kill "$pid" 2>/dev/null && wait "$pid" || true; }
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
cd "$dir"; mkdir -p root bin lib utilbin spool/qmaster/job_scripts spool/execd default/common
apt-get -qq download "${packages[@]}" 2>apt.log
for deb in *.deb; do dpkg -x "$deb" root; done
programs=$dir/root/usr/lib/gridengine shared=$dir/root/usr/share/gridengine ports=()
libraries=$(echo "$dir"/root/usr/lib/*-linux-gnu)
for port in $(shuf -i 20000-29999 -n 50); do
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || ports+=("$port")
done
export PATH=$programs:$PATH LD_LIBRARY_PATH=$programs:$libraries:${libraries/root\/usr/root}
export SGE_ROOT=$dir SGE_CELL=default SGE_QMASTER_PORT=${ports[0]} SGE_EXECD_PORT=${ports[1]}
ln -s "$shared/util" util
for folder in bin lib utilbin; do ln -s "$programs" "$folder/$("$shared/util/arch")"; done
echo localhost "$(uname -n)" >default/common/host_aliases
echo localhost >default/common/act_qmaster
echo "admin_user              $(id -un)
default_domain          none
ignore_fqdn             false
spooling_method         classic
spooling_lib            libspoolc
spooling_params         $dir/default/common;$dir/spool/qmaster
binary_path             $dir/bin
qmaster_spool_dir       $dir/spool/qmaster
security_mode           none
listener_threads        2
worker_threads          2
scheduler_threads       1" >default/common/bootstrap
sed -E "/^#/d; s#^(execd_spool_dir).*#\1 $dir/spool/execd#; s/^(min_[ug]id).*/\1 0/" "$shared/default-configuration" >configuration
spool() { "$@" >>spool.log 2>&1; }
spool spoolinit classic libspoolc "$dir/default/common;$dir/spool/qmaster" init
spool spooldefaults.bin configuration "$dir/configuration"
spool spooldefaults.bin complexes "$shared/util/resources/centry"
spool spooldefaults.bin usersets "$shared/util/resources/usersets"
spool spooldefaults.bin managers "$(id -un)"
SGE_ND=1 sge_qmaster >qmaster.log 2>&1 </dev/null & pid=$!
until_true "qconf -sm"
qconf -as localhost >asked.log 2>&1

expected='h_rt,seconds
90,90
1:30:00,5400
90m,90000000
90M,94371840
90k,90000
2K,2048
90s,refused
90min,refused
2h,refused'
seen=${expected%%$'\n'*}
while IFS=, read -r value _; do
    # A job that is accepted has a number, also with the warning that there is no queue yet.
    job=$(echo true | qsub -h -l "h_rt=$value" 2>&1 | sed -n 's/^Your job \([0-9]*\) .*/\1/p' || true)
    seconds=$([[ ! $job ]] || qstat -j "$job" | sed -n 's/^hard resource_list: *h_rt=//p')
    seen+=$'\n'$value,${seconds:-refused}
done < <(tail -n +2 <<<"$expected")
printf '%s\n' "$(qstat -help | head -n 1)" "$seen"
if [[ $seen == "$expected" ]]; then echo "as described"; else printf '%s\n' "DIFFERS from this:" "$expected"; exit 1; fi
