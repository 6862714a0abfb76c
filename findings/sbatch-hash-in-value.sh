#!/usr/bin/env bash
# sbatch ends an option of a script at a `#`, also inside a word (Slurm 22.05.8, the one of Debian 12).
#
# One expects that `#SBATCH --output=run#1.out` writes run#1.out, as the same option on the command line does, and as
#   in a shell: a `#` begins a comment only at the beginning of a word.
# What happens: the log is `run`, without a message, and options after it on that line are ignored: here --time=5. In
#   single or double quotes the `#` stays, and a `#` on the command line does.
# What it means: put a value with `#` into quotes. Two scripts whose logs differ behind the `#` write one file.
#
# Usage: bash sbatch-hash-in-value.sh   (Debian 12, under a minute; needs no root, installs nothing)
# It downloads the pinned packages with apt-get, unpacks them in a temporary folder, starts munge and slurmctld there
# on 127.0.0.1, submits four jobs that no node runs, ends all and removes the folder. If apt-get finds no package,
# `apt-get update` helps. Exit status: 0 it is as described, 1 it differs, 2 it could not be asked.
set -euo pipefail; umask 077
slurm=22.05.8-4+deb12u3 munge=0.5.15-2+deb12u1
packages=("slurmctld=$slurm" "slurm-client=$slurm" "slurm-wlm-basic-plugins=$slurm" "munge=$munge" "libmunge2=$munge"
    libhwloc15 libjson-c5 libnuma1 libreadline8 libssl3)

dir=$(mktemp -d) pids=()
end() {
    local code=$? i
    for ((i = ${#pids[@]} - 1; i >= 0; i--)); do # those that started last still write to the first
        kill "${pids[i]}" 2>/dev/null && wait "${pids[i]}" || true
    done
    ((code < 2)) || tail -n 5 "$dir"/*.log >&2 || true
    rm -rf "$dir"
    exit "$code"
}
trap end EXIT
trap 'exit 2' ERR INT TERM
start() { "$@" >"$dir/$1.log" 2>&1 </dev/null & pids+=($!); } # a daemon, whose words say to stay in the foreground
until_true() { # COMMAND: ask twice a second, for a minute
    local last=$((SECONDS + 60))
    until sh -c "$1" >"$dir/asked.log" 2>&1; do
        ((SECONDS < last)) || { echo "not so within a minute: $1" >&2; return 2; }
        sleep 0.5
    done
}
cd "$dir"; mkdir root spool state
apt-get -qq download "${packages[@]}" 2>apt.log
for deb in *.deb; do dpkg -x "$deb" root; done
ln -s slurmctld-wlm root/usr/sbin/slurmctld # it looks at the name that it has, and crashes under any other
libraries=$(echo "$dir"/root/usr/lib/*-linux-gnu) host=$(uname -n) ports=()
export PATH=$dir/root/usr/bin:$dir/root/usr/sbin:$PATH SLURM_CONF=$dir/slurm.conf
export LD_LIBRARY_PATH=$libraries:${libraries/root\/usr/root}:$libraries/slurm-wlm
for port in $(shuf -i 20000-29999 -n 50); do
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || ports+=("$port")
done
echo "AuthType=auth/munge
AuthInfo=socket=$dir/munge.sock
PluginDir=$libraries/slurm-wlm
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=$(id -un)
ClusterName=finding
SlurmctldHost=${host%%.*}(127.0.0.1)
SlurmctldPort=${ports[0]}
StateSaveLocation=$dir/state
SlurmctldPidFile=$dir/slurmctld.pid
ProctrackType=proctrack/linuxproc
NodeName=node NodeHostname=${host%%.*} NodeAddr=127.0.0.1 Port=${ports[1]}
PartitionName=all Nodes=ALL Default=YES" >slurm.conf
head -c 1024 /dev/urandom >munge.key
start munged --foreground --force --key-file="$dir/munge.key" --seed-file="$dir/munge.seed" \
    --pid-file="$dir/munged.pid" --log-file="$dir/munge.log" --socket="$dir/munge.sock"
until_true "test -S $dir/munge.sock"
start slurmctld -D
until_true "scontrol ping | grep -q UP"

expected="directive|log|time limit
--output=run#1.out --time=5|run|UNLIMITED
--output='run#1.out' --time=5|run#1.out|00:05:00
--output=\"run#1.out\" --time=5|run#1.out|00:05:00
on the command line|run#1.out|00:05:00"
seen=${expected%%$'\n'*}
while IFS='|' read -r directive _; do
    words=() header="#SBATCH $directive"
    [[ $directive == --* ]] || { words=('--output=run#1.out' --time=5) header='# no directive'; }
    printf '#!/bin/sh\n%s\ntrue\n' "$header" >job.sh
    job=$(sbatch --parsable --hold "${words[@]}" job.sh)
    shown=$(scontrol -o show job "$job")
    log=$(grep -o 'StdOut=[^ ]*' <<<"$shown") limit=$(grep -o 'TimeLimit=[^ ]*' <<<"$shown")
    seen+=$'\n'$directive\|${log##*/}\|${limit#*=}
done < <(tail -n +2 <<<"$expected")
printf '%s\n' "$(sbatch --version)" "$seen"
if [[ $seen == "$expected" ]]; then echo "as described"; else printf '%s\n' "DIFFERS from this:" "$expected"; exit 1; fi
