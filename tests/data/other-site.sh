#!/usr/bin/env bash
# Controllers of sites that are not the test clusters, on ports of their own, for capture.sh: so
# that what they say of partitions, queues, resources and accounts is what real ones say. As root.
#
#   other-site.sh slurm DIR      a slurmctld whose nodes never come; prints: export SLURM_CONF=...
#   other-site.sh sge DIR        a qmaster with one host;            prints: export SGE_ROOT=...
#   other-site.sh down DIR       stop what was started in DIR
# shellcheck disable=SC2016 # $fill_up and $pe_slots are Grid Engine's
set -euo pipefail
dir=$(realpath -m "$2")

slurm() {
    local host
    host=$(hostname -s)
    mkdir -p "$dir/state"
    : >"$dir/gres.conf"
    cat >"$dir/slurm.conf" <<CONF
ClusterName=other
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16917
SlurmUser=root
AuthType=auth/munge
StateSaveLocation=$dir/state
SlurmctldPidFile=$dir/slurmctld.pid
SlurmctldLogFile=$dir/slurmctld.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
AccountingStorageType=accounting_storage/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
GresTypes=gpu
NodeName=c[01-12] NodeHostname=$host Port=[17101-17112] CPUs=64 RealMemory=192000
NodeName=g[1-3] NodeHostname=$host Port=[17121-17123] CPUs=32 RealMemory=256000 Gres=gpu:v100:2
NodeName=h[1-2] NodeHostname=$host Port=[17131-17132] CPUs=96 RealMemory=1031000 Gres=gpu:a100:4,gpu:a100_3g.20gb:2
PartitionName=batch Nodes=c[01-12] Default=YES MaxTime=2-00:00:00 State=UP
PartitionName=long Nodes=c[01-04] MaxTime=INFINITE State=UP AllowAccounts=staff,phd
PartitionName=gpu Nodes=g[1-3],h[1-2] MaxTime=1-12 DefaultTime=60 State=UP
PartitionName=gpu-short Nodes=g[1-3],h[1-2] MaxTime=30 State=UP
PartitionName=bought Nodes=h[1-2] MaxTime=7-0 State=UP AllowGroups=nlp
PartitionName=secret Nodes=c[01-02] Hidden=YES State=UP
PartitionName=old Nodes=c[05-06] State=DOWN
PartitionName=admin Nodes=c[01-12] RootOnly=YES State=UP
CONF
    chmod 755 "$dir"
    slurmctld -f "$dir/slurm.conf" -c
    export SLURM_CONF=$dir/slurm.conf
    for _ in {1..40}; do scontrol ping >/dev/null 2>&1 && break; sleep .25; done
    echo "export SLURM_CONF=$SLURM_CONF"
}

queue() { # queue NAME PE_LIST KEY VALUE ...: from the queues of the practice cluster
    local name=$1 pes=$2 text
    shift 2
    text=$(python3 -c "from jobkit.practice.sge import lines, queue; from pathlib import Path
print(lines(queue('$name', Path('/'))))")
    text=$(sed -e "s/^qname .*/qname $name/" -e "s/^pe_list .*/pe_list $pes/" -e 's/^slots .*/slots 16/' <<<"$text")
    while (($#)); do
        text=$(awk -v key="$1" -v value="$2" '$1 == key {print key, value; next} {print}' <<<"$text")
        shift 2
    done
    echo "$text" >"$dir/q"
    qconf -Aq "$dir/q" >&2
}

sge() {
    local root=$dir/root theirs=/var/lib/gridengine ports
    mkdir -p "$root/other/common" "$dir"/{qmaster/job_scripts,spooldb,execd}
    for part in bin lib util utilbin; do ln -sfn "$(readlink -f "$theirs/$part")" "$root/$part"; done
    sed "s|/var/spool/gridengine/|$dir/|" /usr/share/gridengine/default-bootstrap >"$root/other/common/bootstrap"
    echo "localhost $(hostname)" >"$root/other/common/host_aliases"
    echo localhost >"$root/other/common/act_qmaster"
    chown -R sgeadmin "$dir"
    chmod 755 "$dir"
    export SGE_ROOT=$root SGE_CELL=other SGE_QMASTER_PORT=16444 SGE_EXECD_PORT=16445
    ports="SGE_QMASTER_PORT=$SGE_QMASTER_PORT SGE_EXECD_PORT=$SGE_EXECD_PORT"
    as_admin() { su -s /bin/bash sgeadmin -c "SGE_ROOT=$SGE_ROOT SGE_CELL=$SGE_CELL $ports $1" >&2; }
    as_admin "/usr/share/gridengine/scripts/init_cluster $root other $dir/spooldb sgeadmin"
    as_admin /usr/sbin/sge_qmaster
    for _ in {1..40}; do qconf -sm >/dev/null 2>&1 && break; sleep .25; done
    as_admin "qconf -am root" || true
    qconf -sconf global | grep -v '^#' | sed -e ':a;/\\$/N;s/\\\n *//;ta' -e 's/^\(min_[ug]id\) .*/\1 0/' |
        sed -e "s|^execd_spool_dir .*|execd_spool_dir $dir/execd|" -e 's/^enforce_project .*/enforce_project true/' >"$dir/global"
    qconf -Mconf "$dir/global" >&2
    {
        qconf -sc | sed 's/^\(h_vmem  *h_vmem  *MEMORY  *<=  *YES  *\)NO/\1YES/'
        printf '%s\n' 'gpu gpu INT <= YES JOB 0 0' 'gpu_idle gi INT <= NO NO 0 0' 'gpu_mem gm MEMORY <= YES NO 0 0' \
            'cuda_arch ca INT <= YES NO 0 0'
    } >"$dir/sc"
    qconf -Mc "$dir/sc" >&2
    qconf -as localhost >&2 || true
    printf '%s\n' 'hostname localhost' 'load_scaling NONE' 'complex_values gpu=4,h_vmem=180G' 'user_lists NONE' \
        'xuser_lists NONE' 'projects NONE' 'xprojects NONE' 'usage_scaling NONE' 'report_variables NONE' >"$dir/host"
    qconf -Ae "$dir/host" >&2
    for pe in 'mpi $fill_up' 'mpi-8 8' 'threads $pe_slots' 'whole-node $pe_slots'; do
        printf '%s\n' "pe_name ${pe% *}" 'slots 999' 'user_lists NONE' 'xuser_lists NONE' 'start_proc_args NONE' \
            'stop_proc_args NONE' "allocation_rule ${pe#* }" 'control_slaves TRUE' 'job_is_first_task TRUE' \
            'urgency_slots min' 'accounting_summary FALSE' 'qsort_args NONE' >"$dir/pe"
        qconf -Ap "$dir/pe" >&2
    done
    printf '%s\n' 'name staff' 'type ACL' 'fshare 0' 'oticket 0' 'entries root' >"$dir/staff"
    qconf -Au "$dir/staff" >&2
    for project in nlp physics; do
        printf '%s\n' "name $project" 'oticket 0' 'fshare 0' 'acl NONE' 'xacl NONE' >"$dir/project"
        qconf -Aprj "$dir/project" >&2
    done
    queue gpu.q 'threads whole-node' h_rt '12:00:00,[localhost=48:00:00]'
    queue all.q 'mpi mpi-8,[localhost=threads]' complex_values 'gpu=0'
    queue inter.q NONE qtype INTERACTIVE
    queue staff.q threads user_lists staff h_rt 168:00:00
    queue off.q threads hostlist NONE
    queue shut.q threads
    SGE_ND=1 sge_execd >"$dir/execd.log" 2>&1 &
    echo $! >"$dir/execd.pid"
    for _ in {1..80}; do qstat -F mem_total 2>/dev/null | grep -q mem_total && break; sleep .5; done
    qmod -d shut.q >&2
    echo "export SGE_ROOT=$SGE_ROOT SGE_CELL=$SGE_CELL $ports"
}

down() {
    local pids
    mapfile -t pids < <(cat "$dir"/slurmctld.pid "$dir"/qmaster/qmaster.pid "$dir"/execd/localhost/execd.pid "$dir"/execd.pid 2>/dev/null || true)
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do
        for _ in {1..40}; do kill -0 "$pid" 2>/dev/null || break; sleep .25; done
    done
}
"$1"
