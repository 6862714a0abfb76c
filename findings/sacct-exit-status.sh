#!/usr/bin/env bash
# sacct shows an exit status of 128 or more as that number less 128 (Slurm 22.05.8, the one of Debian 12).
#
# One expects that sacct shows ExitCode 201:0 for a batch script that ends with `exit 201`: sacct(1) says "the exit
#   code returned by the job script", and Slurm's page job_exit_code says that it "mirrors the output of scontrol".
# What happens: sacct shows 73:0. 255 becomes 127:0 ("command not found"), 137 becomes 9:0 though no signal came, and
#   128 becomes 0:0, in a job whose State is FAILED. 127 and less are right, and so is a script that a signal ends
#   (0:9). `scontrol show job` is right (201:0), and so is `squeue -O exit_code` (51456 = 201 * 256, as wait(2) packs
#   it). `sacct --json` is no way out: its exit_code says SUCCESS and 0 for every script that exits, FAILED or not.
# Where it comes from (github.com/SchedMD/slurm, tag slurm-22-05-8-1): src/sacct/print.c, print_fields(), case
#   PRINT_EXITCODE, lines 820-821, `if (tmp_int >= 128) tmp_int -= 128;`, for jobs and steps. Commit ceea258fe9 of
#   July 2014 brought it, after f9b1fdfe54 had made srun add 128 to the signal that ends a step. Commit 831571cb84
#   takes it out in 25.11.0. scontrol has it from slurm_sprint_job_info() in src/api/job_info.c, which subtracts
#   nothing; the JSON is from _dump_job_exit_code() in src/plugins/openapi/dbv0.0.38/parse.c.
# What it means for who reads sacct: ExitCode N:0 is the status N or N + 128, and nothing in sacct says which. Success
#   is State COMPLETED, never 0:0 alone; 9:0 is no signal 9, that is 0:9. To know a status for certain, keep all below
#   128, let the script write its own, or ask scontrol while the controller knows the job (MinJobAge, 300 s).
#
# Usage: bash sacct-exit-status.sh   (Debian 12, under a minute; needs /sys/fs/cgroup but no root, installs nothing)
# It downloads the pinned packages with apt-get, unpacks them in a temporary folder, starts munge, MariaDB and Slurm
# there on 127.0.0.1, runs six jobs, ends all and removes the folder. If apt-get finds no package, `apt-get update`
# helps. Exit status: 0 it is as described, 1 it differs, 2 it could not be asked.
set -euo pipefail; umask 077
slurm=22.05.8-4+deb12u3 munge=0.5.15-2+deb12u1 mariadb=1:10.11.19-0+deb12u1
packages=("slurmctld=$slurm" "slurmd=$slurm" "slurmdbd=$slurm" "slurm-client=$slurm" "slurm-wlm-basic-plugins=$slurm"
    "slurm-wlm-mysql-plugin=$slurm" "munge=$munge" "libmunge2=$munge" "mariadb-server=$mariadb" "libmariadb3=$mariadb"
    "mariadb-server-core=$mariadb" libaio1 libhwloc15 libjson-c5 libnuma1 libreadline8 libssl3 liburing2)

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
cd "$dir"; mkdir root spool state data
apt-get -qq download "${packages[@]}" 2>apt.log
for deb in *.deb; do dpkg -x "$deb" root; done
# The files are NAME-wlm, but slurmctld looks at the name that it has, and crashes under any other.
for name in slurmctld slurmd slurmstepd; do ln -s "$name-wlm" "root/usr/sbin/$name"; done
libraries=$(echo "$dir"/root/usr/lib/*-linux-gnu) host=$(uname -n) user=$(id -un) ports=()
export PATH=$dir/root/usr/bin:$dir/root/usr/sbin:$PATH SLURM_CONF=$dir/slurm.conf
export LD_LIBRARY_PATH=$libraries:${libraries/root\/usr/root}:$libraries/slurm-wlm MYSQL_UNIX_PORT=$dir/mariadb.sock
for port in $(shuf -i 20000-29999 -n 50); do
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || ports+=("$port")
done
common="AuthType=auth/munge
AuthInfo=socket=$dir/munge.sock
PluginDir=$libraries/slurm-wlm
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=$user"
echo "$common
ClusterName=finding
SlurmctldHost=${host%%.*}(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmdUser=$user
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
ProctrackType=proctrack/linuxproc
AccountingStorageType=accounting_storage/slurmdbd
AccountingStoragePort=${ports[1]}
AccountingStoragePass=$dir/munge.sock
NodeName=node NodeHostname=${host%%.*} NodeAddr=127.0.0.1 Port=${ports[2]}
PartitionName=all Nodes=ALL Default=YES" >slurm.conf
echo "$common
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=${ports[1]}
StorageType=accounting_storage/mysql
PidFile=$dir/slurmdbd.pid" >slurmdbd.conf

head -c 1024 /dev/urandom >munge.key
start munged --foreground --force --key-file="$dir/munge.key" --seed-file="$dir/munge.seed" \
    --pid-file="$dir/munged.pid" --log-file="$dir/munge.log" --socket="$dir/munge.sock"
database=(mariadbd --no-defaults --skip-grant-tables --user="$user" --datadir="$dir/data" --tmpdir="$dir"
    --lc-messages-dir="$dir/root/usr/share/mysql" --pid-file="$dir/mariadbd.pid")
printf 'create database mysql;\nuse mysql;\n' | cat - root/usr/share/mysql/mysql_system_tables.sql |
    "${database[@]}" --bootstrap >bootstrap.log 2>&1
start "${database[@]}" --skip-networking --socket="$dir/mariadb.sock"
until_true "test -S $dir/mariadb.sock -a -S $dir/munge.sock"
start slurmdbd -D
until_true "sacctmgr -iQ add cluster finding"
start slurmctld -D
start slurmd -D -N node -d "$dir/root/usr/sbin/slurmstepd"
until_true "sinfo -h -o %t | grep -qx idle"

expected='script,State,ExitCode,json,scontrol,squeue
exit 127,FAILED,127:0,SUCCESS 0,127:0,32512
exit 128,FAILED,0:0,SUCCESS 0,128:0,32768
exit 137,FAILED,9:0,SUCCESS 0,137:0,35072
exit 201,FAILED,73:0,SUCCESS 0,201:0,51456
exit 255,FAILED,127:0,SUCCESS 0,255:0,65280
kill -9 $$,FAILED,0:9,SIGNALED null,0:9,9'
seen=${expected%%$'\n'*}
while IFS=, read -r script _; do
    job=$(sbatch --parsable --output=/dev/null --wrap "$script")
    until_true "sacct -nX -j $job -o state | grep -Eqv 'PENDING|RUNNING'"
    json=$(sacct -X -j "$job" --json | tr -d ' "\n' | sed 's/.*,exit_code:{status://; s/,return_code:/ /; s/[,}].*//')
    scontrol=$(scontrol show job "$job" | sed -n 's/.*ExitCode=//p')
    squeue=$(squeue -h -t all -j "$job" -O exit_code | tr -d ' ')
    seen+=$'\n'$script,$(sacct -nXP --delimiter=, -j "$job" -o state,exitcode),$json,$scontrol,$squeue
done < <(tail -n +2 <<<"$expected")
printf '%s\n' "$(sacct --version)" "$seen"
if [[ $seen == "$expected" ]]; then echo "as described"; else printf '%s\n' "DIFFERS from this:" "$expected"; exit 1; fi
