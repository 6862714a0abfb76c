#!/usr/bin/env bash
# slurmd that uses no cgroup does not start where none are mounted, unless cgroup.conf names a plugin (22.05.8, Debian 12).
#
# One expects that ProctrackType=proctrack/linuxproc, TaskPlugin=task/none and JobAcctGatherType=jobacct_gather/none make
#   a slurmd for a container or a chroot that has no cgroup file system: nothing of it asks for one.
# What happens: it ends with "No filesystem mounted on /sys/fs/cgroup", "Unable to initialize cgroup plugin" and "slurmd
#   initialization failed". Without cgroup.conf, CgroupPlugin is autodetect, and looks at the mount in any case. With
#   the one line `CgroupPlugin=cgroup/v1` in cgroup.conf the same slurmd starts, though still nothing is mounted.
# What it means: a test cluster for any machine needs a cgroup.conf with that line, also if it uses no cgroup.
#
# Usage: bash slurmd-without-cgroups.sh   (Debian 12, under a minute; root, for a mount namespace; installs nothing)
# It downloads the pinned packages with apt-get, unpacks them in a temporary folder, starts slurmd twice without
# /sys/fs/cgroup, without a controller, and removes the folder. If apt-get finds no package, `apt-get update` helps.
# Exit status: 0 it is as described, 1 it differs, 2 it could not be asked.
set -euo pipefail; umask 022
((EUID == 0)) || { echo "only root can hide a file system" >&2; exit 2; }
slurm=22.05.8-4+deb12u3
packages=("slurmd=$slurm" "slurm-wlm-basic-plugins=$slurm" libmunge2 libhwloc15 libjson-c5 libnuma1 libdbus-1-3)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 2' ERR INT TERM
cd "$dir"; mkdir root spool
apt-get -qq download "${packages[@]}" 2>apt.log
for deb in *.deb; do dpkg -x "$deb" root; done
for name in slurmd slurmstepd; do ln -s "$name-wlm" "root/usr/sbin/$name"; done
libraries=$(echo "$dir"/root/usr/lib/*-linux-gnu)
export LD_LIBRARY_PATH=$libraries:${libraries/root\/usr/root}:$libraries/slurm-wlm
echo "ClusterName=finding
SlurmctldHost=localhost(127.0.0.1)
PluginDir=$libraries/slurm-wlm
AuthType=auth/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SlurmUser=root
SlurmdUser=root
SlurmdSpoolDir=$dir/spool
SlurmdPidFile=$dir/slurmd.pid
SlurmdPort=$(shuf -i 20000-29999 -n 1)
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1
PartitionName=p Nodes=n1" >slurm.conf
# ended by timeout if it starts: without munge and a controller it can do no more
start() {
    # shellcheck disable=SC2016 # the inner shell expands them
    unshare --mount bash -c 'umount -R /sys/fs/cgroup 2>/dev/null || true
        grep -q " /sys/fs/cgroup " /proc/self/mounts && exit 2
        timeout 5 "$1/root/usr/sbin/slurmd" -D -N n1 -f "$1/slurm.conf" 2>&1' bash "$dir" >"$1.log" || [[ $? != 2 ]]
}
start without
echo "CgroupPlugin=cgroup/v1" >cgroup.conf
start with
trap - ERR
grep -h "cgroup\|initialization failed" without.log || true
grep -h "slurmd version" with.log || true
grep -q "No filesystem mounted on /sys/fs/cgroup" without.log && ! grep -q "slurmd version" without.log &&
    grep -q "slurmd version 22.05.8 started" with.log && ! grep -q "initialization failed" with.log
