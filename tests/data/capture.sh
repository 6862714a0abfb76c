#!/usr/bin/env bash
# Writes slurm/*.txt and sge/*.txt anew: what real daemons answered, one file an answer
# (the command, its status, its two streams). tests/schedulers/ read them.
#
#   capture.sh slurm     after: jobkit practice up slurm; eval "$(jobkit practice env)"   (4 minutes)
#   capture.sh sge       likewise with sge (1 minute)
#   capture.sh slurm_survey, capture.sh sge_survey     only what they say of their sites, and what
#                        other-site.sh says of another; these disturb nobody
#   capture.sh slurm slurm_changes     only a part, by the name of its function
#
# It takes node n2 down for a moment: use it on a cluster that nobody else is using, and whose
# accounting is new too, for that still knows the jobs that had the same numbers.
# shellcheck disable=SC2329 # several functions are called by wait_until and keep, by name
set -uo pipefail
which=${1:?slurm, sge, slurm_survey or sge_survey}
data=$(cd "$(dirname "$0")" && pwd)
here=$data/${which%_survey}
work=$(mktemp -d /tmp/jobkit-capture-XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
chmod 755 "$work" # other-site.sh runs daemons as other users
mkdir logs

keep() { # keep NAME COMMAND...: run it and write its answer to NAME.txt
    local name=$1 status=0
    shift
    "$@" >"$work/stdout" 2>"$work/stderr" || status=$?
    {
        printf '$ %s\nstatus %s\n--- stdout\n' "$*" "$status"
        cat "$work/stdout"
        printf -- '--- stderr\n'
        cat "$work/stderr"
    } | sed "s|$work|/tmp/work|g" >"$here/$name.txt"
}
wait_until() { # wait_until SECONDS COMMAND...
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1 || ((SECONDS >= end)); do sleep 0.5; done
}
printf '#!/bin/bash\nsleep 1\n' >ok.sh
printf '#!/bin/bash\nsleep 300 & wait\n' >long.sh
cat >two.sh <<'TWO'
#!/bin/bash
((${SLURM_ARRAY_TASK_ID:-$SGE_TASK_ID} < 3)) || { sleep 300 & wait; }
TWO
as_nobody() {
    setpriv --reuid=nobody --clear-groups "$@"
}
cat >life.sh <<'LIFE'
#!/bin/bash
case ${SLURM_ARRAY_TASK_ID:-$SGE_TASK_ID} in
2) exit 7 ;;
3) [[ -n ${SLURM_JOB_ID:-} ]] || exit 100
   python3 -c 'import time; x = bytearray(320_000_000); time.sleep(6)' ;;
4) sleep 300 & wait ;;
*) sleep 1 ;;
esac
LIFE

columns=JobID,State,ExitCode,ElapsedRaw,MaxRSS,ReqMem,AllocCPUS,NodeList,Reason,JobName,End
queue=(squeue -r -h -o '%i|%T|%r|%N|%M|%S|%j|%P')
account=(env SLURM_BITSTR_LEN=0 sacct -n -P -D -S now-1hours --format="$columns")
slurm() {
    slurm_jobs
    slurm_checks
    slurm_survey
    slurm_changes
    slurm_shared
    slurm_halves
    slurm_unreachable
    slurm_charges
}
accounted() { "${account[@]}" -j "$1" | cut -d'|' -f 1,2 | grep -qx "$2"; } # accounted JOB TASK|STATE
slurm_jobs() { # what becomes of jobs, from sbatch to sacct
    local small=(--job-name=jobkit-capture --mem=50M --cpus-per-task=1 --output=logs/%A_%a.log)
    local large=(--job-name=jobkit-capture --mem=6000M --array=1-1)
    local preempts=(sbatch --parsable -p high -w n1 --mem=4000M --array=1-1 -o /dev/null ok.sh)
    job_of() { sed -n '/--- stdout/,/--- stderr/s/^\([0-9][0-9]*\).*/\1/p' "$here/$1.txt" | head -n 1; }

    keep submit-parsable sbatch --parsable "${small[@]}" --array=1-5 life.sh
    keep submit-cluster sbatch --parsable -M lab "${small[@]}" --time=1 --array=1-1 long.sh
    keep submit-plain sbatch "${small[@]}" ok.sh
    keep submit-plain-cluster sbatch -M lab "${small[@]}" ok.sh
    keep submit-irregular sbatch --parsable --hold "${small[@]}" --array=1-60:3,61-99:2%2 ok.sh
    keep submit-requeue sbatch --parsable "${small[@]}" --array=1-3 long.sh
    keep submit-preempted sbatch --parsable -p low -w n1 --no-requeue "${large[@]}" long.sh
    keep submit-node-fail sbatch --parsable -w n2 --no-requeue "${small[@]}" --array=1-1 long.sh
    local life late requeue preempted failing irregular
    life=$(job_of submit-parsable) late=$(job_of submit-cluster) irregular=$(job_of submit-irregular)
    requeue=$(job_of submit-requeue) preempted=$(job_of submit-preempted) failing=$(job_of submit-node-fail)
    started() { [[ $(squeue -h -r -t R -o %i -j "${life},${late},${requeue},${preempted},${failing}" | wc -l) -ge 7 ]]; }
    wait_until 10 started
    keep squeue-live "${queue[@]}" -j "$life,$late,$irregular,$requeue"
    keep squeue-by-name "${queue[@]}" --name jobkit-capture
    keep squeue-truncated squeue -h -o "${queue[4]}" -j "$irregular"
    keep squeue-full env SLURM_BITSTR_LEN=0 squeue -h -o "${queue[4]}" -j "$irregular"
    wait_until 20 accounted "$requeue" "${requeue}_2|RUNNING"
    scancel "${life}_4"
    scancel "${requeue}_3"
    scontrol requeue "${requeue}_2"
    "${preempts[@]}"
    wait_until 10 eval "! squeue -h -j $preempted | grep -q ."
    scontrol update nodename=n2 state=down reason=capture
    wait_until 10 eval "! squeue -h -j $failing | grep -q ."
    keep squeue-requeued "${queue[@]}" -j "$requeue"
    scontrol update nodename=n2 state=resume
    wait_until 15 eval "! squeue -h -j $life | grep -q ."
    keep squeue-gone "${queue[@]}" -j "$life"
    keep squeue-unknown "${queue[@]}" -j 999999
    wait_until 20 accounted "$failing" "${failing}_1|NODE_FAIL"
    wait_until 20 accounted "$requeue" "${requeue}_2|PENDING"
    keep sacct-life "${account[@]}" -j "$life"
    keep sacct-preempted "${account[@]}" -j "$preempted,$failing"
    keep sacct-truncated sacct -n -P -D -S now-1hours --format="$columns" -j "$irregular"
    keep sacct-pending "${account[@]}" -j "$irregular"
    keep sacct-requeued "${account[@]}" -j "$requeue"
    keep sacct-by-name "${account[@]}" --name jobkit-capture
    keep sacct-unknown "${account[@]}" -j 999999
    slurm_again "${large[@]}"
    scancel "${irregular}_[10-20,61]"
    sleep 5 # the accounting lags by that much
    keep sacct-cancelled-part "${account[@]}" -j "$irregular"
    scancel "$irregular"
    wait_until 150 eval "! squeue -h -j $late | grep -q ."
    wait_until 20 accounted "$late" "${late}_1|TIMEOUT"
    keep sacct-timeout "${account[@]}" -j "$late"
    keep sacct-cancelled-pending "${account[@]}" -j "$irregular"
    scancel "$requeue"
}
slurm_again() { # a task that is preempted, and then runs again: at once, and when the accounting knows
    local job
    keep submit-again sbatch --parsable -p low -w n1 "$@" long.sh
    job=$(job_of submit-again)
    wait_until 20 accounted "$job" "${job}_1|RUNNING"
    "${preempts[@]}"
    wait_until 20 accounted "$job" "${job}_1|PREEMPTED"
    keep sacct-again-at-once "${account[@]}" -j "$job"
    keep squeue-again "${queue[@]}" -j "$job"
    wait_until 20 accounted "$job" "${job}_1|PENDING"
    keep sacct-again "${account[@]}" -j "$job"
    scancel "$job"
}
slurm_shared() { # tasks that wait share a row: cancelled, it names task 3 still, which has just begun
    local job
    job=$(sbatch --parsable --mem=50M --array=1-6%2 -o /dev/null long.sh)
    wait_until 20 eval "squeue -h -r -t R -o %K -j $job | grep -qx 2"
    sleep 3
    scancel "${job}_[1,6]"
    wait_until 20 eval "squeue -h -r -t R -o %K -j $job | grep -qx 3"
    scancel "${job}_[2,4-5]"
    keep sacct-shared "${account[@]}" -j "$job"
    sleep 6
    keep sacct-shared-later "${account[@]}" -j "$job"
    scancel "$job"
}
slurm_halves() { # what began and ended while slurmdbd was away: it is told in two parts
    local job run=${SLURM_CONF%/*}/run account=("${account[@]/now-1hours/$(date +%FT%T)}")
    kill -KILL "$(cut -d' ' -f1 "$run/slurmdbd.pid")"
    wait_until 10 eval "! kill -0 $(cut -d' ' -f1 "$run/slurmdbd.pid")"
    job=$(sbatch --parsable --job-name=jobkit-capture --mem=50M --array=1-5 -o /dev/null life.sh)
    wait_until 20 eval "squeue -h -r -t R -o %K -j $job | grep -qx 4"
    scancel "${job}_4"
    wait_until 20 eval "! squeue -h -j $job | grep -q ."
    jobkit practice up slurm --dir "${SLURM_CONF%/*/*}" >&2
    wait_until 30 accounted "$job" "${job}_2|FAILED"
    keep sacct-first-half "${account[@]}" -j "$job"
    wait_until 30 accounted "$job" "${job}_4|CANCELLED by $UID"
    keep sacct-second-half "${account[@]}" -j "$job"
}
slurm_changes() { # of an array whose tasks 1 and 2 have ended, then all
    local job
    job=$(sbatch --parsable --mem=50M --array=1-8%1 -o /dev/null two.sh)
    wait_until 20 eval "squeue -h -r -t R -o %K -j $job | grep -qx 3"
    keep throttle-partly scontrol update "JobId=$job" ArrayTaskThrottle=2
    keep throttle-unknown scontrol update JobId=999999 ArrayTaskThrottle=2
    keep throttle-denied as_nobody scontrol update "JobId=$job" ArrayTaskThrottle=9
    keep scancel-denied as_nobody scancel "${job}_[4-5]"
    keep scancel-partly scancel "${job}_[1-4,8]"
    keep scancel-all scancel "$job"
    keep scancel-again scancel "$job"
    keep scancel-wrong scancel "${job}_[1-9:2]"
    wait_until 20 eval "! squeue -h -j $job | grep -q ."
    keep throttle-ended scontrol update "JobId=$job" ArrayTaskThrottle=2
}
slurm_checks() {
    keep config scontrol show config
    keep sinfo sinfo -a -e -h -o '%P|%l|%G|%a|%D|%c|%m'
    scontrol update NodeName=n1,n2 State=drain Reason='fan broken'
    keep sinfo-down sinfo -a -h -o '%P|%D|%T|%N|%E'
    scontrol update NodeName=n1,n2 State=resume
    keep qos sacctmgr -n -P show qos format=Name
    keep refused-partition sbatch --parsable -p nope ok.sh
    keep test-only-ok sbatch --test-only ok.sh
    keep test-only-walltime sbatch --test-only --time=999 ok.sh
    keep test-only-partition sbatch --test-only -p nope ok.sh
    keep test-only-gres sbatch --test-only --gres=fpga:1 ok.sh
    keep test-only-gpus sbatch --test-only --gres=gpu:5 ok.sh
    keep test-only-memory sbatch --test-only --mem=99G ok.sh
    keep test-only-array sbatch --test-only --array=1-20000 ok.sh
    keep test-only-script sbatch --test-only missing.sh
}
slurm_charges() { # what jobkit.schedulers.slurm asks: partitions for an account and a QOS, and not for a QOS
    local asked
    # shellcheck disable=SC2016 # sh expands it
    asked='scontrol -o show partition; sacctmgr -n -P show user "$0" withassoc'
    asked+=' format=DefaultAccount,Account,DefaultQOS,QOS && '
    asked+='{ sacctmgr -n -P show assoc where user= format=Account,ParentName,User; true; }'
    sacctmgr -i add qos gpuq
    sacctmgr -i add account nlp
    sacctmgr -i add account sub parent=nlp
    sacctmgr -i add user root account=nlp,sub
    sacctmgr -i modify user root set qos=normal,gpuq
    scontrol create PartitionName=nlp Nodes=n1 AllowAccounts=nlp AllowQos=gpuq
    scontrol create PartitionName=open Nodes=n1 DenyQos=normal
    keep charges sh -c "$asked" root
}
slurm_survey() { # what jobkit.schedulers.slurm_survey asks
    survey_slurm() {
        keep "$1-version" sinfo --version
        keep "$1-ping" scontrol ping
        keep "$1-config" scontrol show config
        keep "$1-nodes" sinfo -a -e -h -o '%P|%l|%G|%a|%D|%c|%m'
        keep "$1-partitions" as_user "scontrol -o show partition"
        keep "$1-sacct" sacct -n -P -X -S now
        keep "$1-accounts" sacctmgr -n -P show user root withassoc format=DefaultAccount,Account
    }
    as_user() { su -s /bin/bash nobody -c "SLURM_CONF=$SLURM_CONF $1"; }
    survey_slurm lab
    { grep -v '^Accounting' "$SLURM_CONF"; echo 'SlurmctldPort=16817'; } >down.conf
    SLURM_CONF=$work/down.conf keep down-ping scontrol ping
    { cat "$SLURM_CONF"; echo 'AccountingStoragePort=16819'; } >nodbd.conf
    SLURM_CONF=$work/nodbd.conf keep nodbd-sacct sacct -n -P -X -S now
    SLURM_CONF=$work/nodbd.conf keep nodbd-accounts sacctmgr -n -P show user root withassoc format=DefaultAccount,Account
    (
        up=$("$data/other-site.sh" slurm "$work/other") || exit 1
        eval "$up"
        survey_slurm other
        "$data/other-site.sh" down "$work/other"
    )
}
slurm_unreachable() { # the same cluster, at ports where nobody listens
    { grep -v '^Accounting' "$SLURM_CONF"; echo 'SlurmctldPort=16817'; } >off.conf
    { cat "$SLURM_CONF"; echo 'AccountingStoragePort=16819'; } >nodbd.conf
    SLURM_CONF=$work/off.conf keep squeue-unreachable squeue -r -h -j 1
    SLURM_CONF=$work/off.conf keep sacct-off sacct -n -P -j 1
    SLURM_CONF=$work/off.conf keep sacctmgr-off sacctmgr -n -P show assoc user=root format=Account
    SLURM_CONF=$work/nodbd.conf keep sacct-unreachable sacct -n -P -j 1
}

gone() { ! qstat | grep -Eq "^ *$1 "; }
sge() {
    local name=jobkit-capture-$$ base=(-S /bin/bash -cwd -o logs -e logs)
    base+=(-N "$name")
    job_of() { sed -n '/--- stdout/,/--- stderr/s/^\([0-9][0-9]*\).*/\1/p' "$here/$1.txt" | head -n 1; }
    printf '#!/bin/bash\n[[ -e marker ]] && exit 3\ntouch marker; exit 99\n' >retry.sh
    printf '#!/bin/bash\nkill -9 $$\n' >killed.sh
    printf "#!/bin/bash\npython3 -c 'import time; x = bytearray(300_000_000); time.sleep(3)'\n" >hog.sh

    keep submit-terse qsub -terse "${base[@]}" -t 1-5 -tc 5 life.sh
    keep submit-plain qsub "${base[@]}" ok.sh
    keep submit-plain-array qsub "${base[@]}" -t 1-2 ok.sh
    keep submit-limit qsub -terse "${base[@]}" -l h_rt=3 -t 1-1 long.sh
    keep submit-held qsub -terse "${base[@]}" -h -t 1-200 ok.sh
    keep submit-waiting qsub -terse "${base[@]}" -l ngpus=2 -t 1-9 -tc 1 long.sh
    keep submit-retry qsub -terse "${base[@]}" -t 1-1 retry.sh
    qsub "${base[@]}" -t 1-1 killed.sh >/dev/null
    keep submit-memory qsub -terse "${base[@]}" -l h_vmem=2G -t 1-1 hog.sh
    local life held waiting k
    life=$(job_of submit-terse) held=$(job_of submit-held) waiting=$(job_of submit-waiting)
    for k in {2..128..6}; do qdel "$held.$k"; done >/dev/null
    wait_until 10 eval "qstat | grep -q Eqw && qstat | grep -q '^ *$waiting .* r '"
    keep qstat-live qstat -u "$(id -un)" -xml
    qdel "$life.4" >/dev/null
    keep qdel-unknown qdel 999999
    wait_until 20 gone "$(job_of submit-limit)"
    wait_until 20 gone "$(job_of submit-retry)"
    wait_until 20 eval "! qstat | grep -q '^ *$life .* dr '"
    qdel "$life" "$held" "$waiting" >/dev/null
    wait_until 20 eval "! qstat | grep -q '$waiting '"
    sleep 2 # the accounting lags by that much
    keep qstat-empty qstat -u "$(id -un)" -xml
    keep qacct qacct -j "$name"
    keep qacct-unknown qacct -j nosuchname
    keep qacct-no-file qacct -f /nonexistent -j "$name"
    SGE_QMASTER_PORT=9 keep qstat-unreachable qstat -u "$(id -un)" -xml
    sge_checks
    sge_changes
    sge_since
}
sge_since() { # by owner and time, as several runs are asked about; and by name: a start that failed has no time
    local since good bad
    since=$(date +%Y%m%d%H%M)
    printf '#!/bin/bash\nexit 3\n' >three.sh
    good=$(qsub -terse -S /bin/bash -N jobkit-since -o /dev/null -j y -t 1-2 three.sh | cut -d. -f1)
    bad=$(qsub -terse -S /bin/bash -N jobkit-since -o /nonexistent/logs -j y -t 1-1 three.sh | cut -d. -f1)
    wait_until 20 gone "$good"
    wait_until 20 eval "qstat | grep '^ *$bad ' | grep -q Eqw"
    wait_until 20 eval "qacct -j jobkit-since | grep -q '^jobnumber  *$bad '"
    keep qstat-eqw qstat -u "$(id -un)" -xml
    keep qacct-since qacct -o "$(id -un)" -b "$since" -j
    keep qacct-since-none qacct -o nobody -b "$since" -j
    keep qacct-eqw qacct -j jobkit-since
    qdel "$bad" >/dev/null
}
sge_changes() { # of an array whose tasks 1 and 2 have ended, then all
    local job
    job=$(qsub -terse -S /bin/bash -t 1-8 -tc 1 -notify -o /dev/null -j y two.sh | cut -d. -f1)
    wait_until 20 eval "qstat | grep -q '^ *$job .* r .* 3\$'"
    keep throttle-partly qalter -tc 2 "$job"
    keep throttle-unknown qalter -tc 2 999999
    keep throttle-denied as_nobody qalter -tc 9 "$job"
    keep qdel-denied as_nobody qdel "$job.4-5"
    keep qdel-partly qdel "$job.1" "$job.3-4" "$job.8"
    keep qdel-all qdel "$job"
    keep qdel-again qdel "$job"
    wait_until 30 gone "$job"
    keep throttle-ended qalter -tc 2 "$job"
}
sge_checks() {
    local job
    keep config qconf -sconf
    keep complexes qconf -sc
    qconf -sq gpu.q | sed -e 's/^qname .*/qname short.q/' -e 's/^h_rt .*/h_rt 00:10:00/' >short.q
    qconf -Aq short.q
    keep queues qconf -sq '*'
    keep verify-ok qsub -w v -cwd -t 1-3 ok.sh
    keep verify-h-rt qsub -w v -cwd -q short.q -l h_rt=3600 ok.sh
    qconf -dq short.q
    keep verify-queue qsub -w v -cwd -q nope.q ok.sh
    keep verify-resource qsub -w v -cwd -l nogpus=1 ok.sh
    keep verify-gpus qsub -w v -cwd -l ngpus=9 ok.sh
    keep verify-pe qsub -w v -cwd -pe nope 2 ok.sh
    keep verify-load qsub -w v -cwd -l mem_free=1G ok.sh
    keep verify-script qsub -w v missing.sh
    job=$(qsub -terse -b y -o /dev/null -j y sleep 60)
    wait_until 20 eval "qstat | grep -q '^ *$job .* r '"
    keep verify-exclusive-busy qsub -w v -cwd -l exclusive=true ok.sh
    qdel "$job" >/dev/null
    keep refused-queue qsub -terse -cwd -q nope.q ok.sh
}
sge_survey() { # what jobkit.schedulers.sge_survey asks
    survey_sge() {
        keep "$1-version" qstat -help
        keep "$1-config" qconf -sconf
        keep "$1-queues" qconf -sq '*'
        keep "$1-complexes" qconf -sc
        keep "$1-instances" qstat -F
        keep "$1-qacct" qacct -j jobkit-doctor-asks
        for pe in $(qconf -spl); do keep "$1-pe-$pe" qconf -sp "$pe"; done
    }
    survey_sge lab
    SGE_QMASTER_PORT=9 keep down-config qconf -sconf
    (
        up=$("$data/other-site.sh" sge "$work/other" 2>/dev/null) || exit 1
        eval "$up"
        survey_sge other
        keep other-projects qconf -sprjl
        "$data/other-site.sh" down "$work/other"
    )
}
"${2:-$which}"
