#!/usr/bin/env bash
# While the nodes are down, sbatch --test-only refuses a job in the words of an impossible one; sbatch takes it (22.05.8, Debian 12).
#
# One expects that --test-only "validates the batch script and returns an estimate": it refuses what sbatch would refuse.
# What happens: with all nodes of the partition down or drained, as in a maintenance, it ends with 1 and "allocation failure:
#   Requested node configuration is not available". The submission itself of the same job succeeds, and the job waits. Of a
#   request that no node has, 800 GB, both say those words: only sbatch tells the two apart.
# What it means: a tool that asks --test-only first must look at the states of nodes (sinfo) before it believes a refusal.
#
# Usage: bash sbatch-test-only-nodes-down.sh   (Debian 12, under a minute; root; installs nothing)
# It downloads the pinned packages with apt-get, unpacks them in a temporary folder, starts munged and slurmctld there, without
# any slurmd, on loopback, asks, and ends them. If apt-get finds no package, `apt-get update` helps.
# Exit status: 0 it is as described, 1 it differs, 2 it could not be asked.
set -euo pipefail; umask 022
((EUID == 0)) || { echo "munged and slurmctld run as root here" >&2; exit 2; }
slurm=22.05.8-4+deb12u3
packages=("slurmctld=$slurm" "slurm-client=$slurm" "slurm-wlm-basic-plugins=$slurm" munge libmunge2 libhwloc15 libjson-c5
    libnuma1 libdbus-1-3 liblua5.3-0)
dir=$(mktemp -d); pids=()
trap '((${#pids[@]} == 0)) || kill "${pids[@]}" 2>/dev/null || true; wait; rm -rf "$dir"' EXIT
trap 'exit 2' ERR INT TERM
cd "$dir"; mkdir root state
apt-get -qq download "${packages[@]}" 2>apt.log
for deb in *.deb; do dpkg -x "$deb" root; done
libraries=$(echo "$dir"/root/usr/lib/*-linux-gnu)
export LD_LIBRARY_PATH=$libraries:${libraries/root\/usr/root}:$libraries/slurm-wlm SLURM_CONF=$dir/slurm.conf
head -c 1024 /dev/urandom >munge.key; chmod 600 munge.key; chmod 755 "$dir"
root/usr/sbin/munged --foreground --force --key-file="$dir/munge.key" --socket="$dir/munge.sock" --pid-file="$dir/munged.pid" \
    --seed-file="$dir/munge.seed" --log-file="$dir/munge.log" 2>munge.err &
pids+=($!)
echo "ClusterName=finding
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$(shuf -i 20000-29999 -n 1)
PluginDir=$libraries/slurm-wlm
AuthInfo=socket=$dir/munge.sock
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmUser=root
StateSaveLocation=$dir/state
SlurmctldPidFile=$dir/slurmctld.pid
NodeName=n[1-2] NodeAddr=127.0.0.1 CPUs=4 RealMemory=4000 State=DOWN Reason=maintenance
PartitionName=p Nodes=n[1-2] Default=YES State=UP" >slurm.conf
find root -name 'slurmctld*' -path '*sbin*' | head -1 >ctld
"$(cat ctld)" -D -f "$dir/slurm.conf" >ctld.log 2>&1 &
pids+=($!)
client() { root/usr/bin/"$1" "${@:2}"; }
for _ in $(seq 150); do client scontrol ping 2>/dev/null | grep -q "is UP" && break; sleep 0.2; done
client sinfo --version; client sinfo -h -o "%P %D %T %E"
asked() {
    local status=0
    client sbatch "${@:2}" --chdir=/ -o /dev/null --wrap true >"$1" 2>&1 || status=$?
    sed "s/^/$1: /" "$1"; echo "$1: status $status"
    echo "$status" >"$1.status"
}
trap - ERR
asked tested --test-only; asked tested-800G --test-only --mem=800G; asked submitted; asked submitted-800G --mem=800G
words="Requested node configuration is not available"
[[ $(cat tested.status tested-800G.status submitted.status submitted-800G.status | xargs) == "1 1 0 1" ]] &&
    grep -q "$words" tested && grep -q "$words" tested-800G && grep -q "Submitted batch job" submitted && grep -q "$words" submitted-800G
