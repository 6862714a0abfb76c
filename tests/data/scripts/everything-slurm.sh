#!/bin/bash
#SBATCH --job-name=stanza-20260101-120000-beef
#SBATCH --output=/home/ada/runs/stanza-20260101-120000-beef/logs/%A_%a.out
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@60
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=2
#SBATCH --mem=8G
#SBATCH --time=00:10:00
#SBATCH --account=nlp
#SBATCH --qos=long
#SBATCH --mail-type=END,FAIL --mail-user=ada@example.org
#SBATCH --constraint=a100&ib
#SBATCH --exclude=node07,n[1-3]
#SBATCH --reservation=42
#SBATCH --nodes=1
#SBATCH --ntasks=1
#
# Runs one point of the sweep stanza: copies the inputs to this node's scratch, runs, copies the results home.
#   under the scheduler    task k runs point k (--offset N: point k + N; --list FILE: the points on line k of FILE)
#   by hand                bash job.sh 3        runs point 3 on this machine
set -euo pipefail

run=/home/ada/runs/stanza-20260101-120000-beef
python=/opt/jobkit/bin/python
scheduler=slurm job=${SLURM_ARRAY_JOB_ID:-} task=${SLURM_ARRAY_TASK_ID:-} restart=${SLURM_RESTART_COUNT:-0}
round=1 limit=''
case ${1:-} in
    --offset) point=$((task + $2)) ;;
    --list) point=$(sed -n "$((task + $3))p" "$run/$2") ;;
    --point) point=$2 limit=${3:-} ;;
    "") point=$task ;;
    *) point=$1 scheduler=hand job=$$ task='' ;;
esac

[[ -f $run/points.jsonl ]] || { echo "job.sh: the run folder is no longer at $run: move it back" >&2; exit 2; }
[[ $point =~ ^[1-9][0-9]*$ ]] || { echo "job.sh: no point '$point'; type: bash job.sh K" >&2; exit 2; }
point_id=$(sed -n "${point}s/.*\"point_id\": \"\([^\"]*\)\".*/\1/p" "$run/points.jsonl" || true)
[[ $point_id ]] || { echo "job.sh: no point '$point' in $run/points.jsonl; type: bash job.sh K" >&2; exit 2; }

# A point that is done never runs again, even if the scheduler starts its task again.
if ((${restart:-0})) && grep -qs '"outcome": "ok"' "$run/results/$point_id"/try-*/record.json; then exit 0; fi

# Makes a new folder for this try, so that nothing is overwritten. If home has no room for the try's own
# files, its results could not be copied home either, so the try does not begin.
# The log may be on the same full disk: a failed echo must not become the exit status.
no_home() { echo "job.sh: stage_out: $1, so nothing was run" >&2 || true; exit 73; }  # EX_CANTCREAT
try=1
mkdir -p "$run/results/$point_id" || no_home "cannot write in $run/results"
until mkdir "$run/results/$point_id/try-$try" 2>/dev/null; do
    [[ -d $run/results/$point_id/try-$try ]] || no_home "cannot write in $run/results"
    try=$((try + 1))
done
home=$run/results/$point_id/try-$try
{
    printf '%s\n' "scheduler=$scheduler" "job=$job" "task=$task" "restart=$restart" "round=$round" \
        "host=$HOSTNAME" "pid=$$" "at=$(date -u +%FT%TZ)" "queue=${SLURM_JOB_PARTITION:-}" >"$home/begin" &&
        printf '%1024s\n' '' >"$home/exit.part"           # reserves space for the exit file
} || { rm -rf "$home"; no_home "no room in $run/results"; }

# Whatever happens next: copy the results home, keep the exit status, then remove scratch.
stage=scratch outcome='' because='' message='' signal='' work='' own='' shared='' inputs='' worker='' ender='' sync='' watch='' since=0
alone() { own=$scratch shared=''; echo "job.sh: this task makes its own copy of the inputs: $1" >&2 || true; }
fail() { outcome=$1 message=$2; echo "job.sh: $1: $2" >&2 || true; exit 1; }
copier() { if command -v rsync >/dev/null; then echo rsync; else echo cp; fi; }
copy() { "copy_with_$(copier)" "$@"; }                # and files changed in the second $since or later in any case
copy_with_rsync() {                                   # rsync 3.5 writes through no link of another user: the path has none
    local from=${*: -2:1} to=${*: -1} folder
    [[ $to == */* ]] || to=./$to
    folder=$(cd "${to%/*}/" && pwd -P) || return
    if ((since)); then
        (cd "$from" && find . -name '*.part' -prune -o -type f -newerct "@$((since - 1)).9" -printf '%P\0') |
            rsync -a --ignore-times --from0 --files-from=- "$from" "$folder/" || return
    fi
    rsync -a "${@:1:$#-1}" "$folder/${to##*/}"
}
copy_with_cp() {                                      # understands the arguments of rsync that this script uses
    local links=-P exclude='' to=${*: -1} from target failed=0
    while [[ $1 == --* ]]; do
        case $1 in
            --copy-links) links=-L ;;
            --exclude=*) exclude=${1#--exclude=} ;;
        esac
        shift
    done
    for from in "${@:1:$#-1}"; do
        target=$to
        [[ $from == */ || $to != */ ]] || target=$to${from##*/}
        if [[ -d $from ]]; then
            copy_folder "$links" "$exclude" "${from%/}" "${target%/}" || failed=1
        else
            copy_file "$links" "$from" "$target" || failed=1
        fi
    done
    return "$failed"
}
copy_folder() {                                       # -P|-L PATTERN FROM TO; does not copy unchanged files
    local state name failed=0
    local -A there=()
    mkdir -p "$4" || return
    while IFS= read -r -d '' state && IFS= read -r -d '' name; do
        there[/$name]=$state
    done < <(cd "$4" && find . -printf '%y %s %Ts\0%P\0')
    while IFS= read -r -d '' state && IFS= read -r -d '' name; do
        case $state in
            end) return "$failed" ;;
            d*) mkdir -p "$4/$name" || failed=1 ;;
            [fl]*)
                if [[ ${there[/$name]:-} != "${state% *}" ]] || ((since && ${state##* } >= since)); then
                    copy_file "$1" "$3/$name" "$4/$name" || failed=1
                fi ;;
        esac
    done < <(cd "$3" && find "$1" . ! -name . -name "$2" -prune -o -printf '%y %s %Ts %Cs\0%P\0' && printf 'end\0\0')
    return 1                                          # find did not see all files
}
copy_file() {                                         # -P|-L FROM TO; a file has its name once it is whole
    local part=${3%/*}/.$BASHPID.part
    cp "$1" --preserve=mode,timestamps "$2" "$part" && mv -fT "$part" "$3" && return
    rm -f "$part"
    return 1
}
differing() {                                         # FROM TO: files that TO lacks, or has in another size or second
    local folder
    for folder in "$1" "$2" "$2"; do
        (cd "$folder" && find . -name '*.part' -prune -o -type f -printf '%s %Ts %P\0' -o -type l -printf '%P\0') || exit
    done | LC_ALL=C sort -z | LC_ALL=C uniq -zu | tr '\0' '\n'
}
# Background commands do not hold the locks (8<&- 9<&-), because they may outlive this script for a moment.
# Only the worker holds the lock of its folder (9): while it runs, no other task removes that folder.
# A copy that has begun is completed: its caller may be asked to end between a file's copy and its new name.
# Size and second of a file may stay though it changes, so a copy needs the second in which the last one began,
# by the clock of scratch. A copy waits for another one, which may have read older files (7).
bring_home() {
    [[ ! -d $work/out ]] || (
        trap '' TERM
        flock 7 2>/dev/null || true
        touch "$work" || true
        now=$(stat -c %Z "$work") since=$(stat -c %Y "$work/since" || echo 0)
        copy --exclude='*.part' "$work/out/" "$home/" 7<&- || exit
        touch -d "@$now" "$work/since" || true
    ) 7<"$work/out" 8<&- 9<&-
}
bring_last() {
    local files=''
    [[ -d $work/out ]] && bring_home || return 1
    if declare -F differing >/dev/null; then          # a template may have its own copy
        files=$(differing "$work/out" "$home") || files=unknown
    fi
    [[ ! $files ]] || { echo "job.sh: files whose size or time at home is not that on scratch: $files" >&2; return 1; }
}
end_worker() {                                        # asks the worker to end, and kills it if it does not
    local half
    kill -TERM "$worker" 2>/dev/null || return 0
    for ((half = 0; half < 2 * $1; half++)); do
        kill -0 "$worker" 2>/dev/null || return 0
        sleep 0.5
    done
    kill -KILL "$worker" 2>/dev/null || true
}
lock() { flock -w "$1" 8 & wait $!; }                 # in the background, so that a trap can run meanwhile
clean_scratch() {                                     # removes folders of ended tasks, then unused inputs
    local folder tasks
    for folder in "$own"/*/lock; do                   # another task may remove one at the same moment
        if flock -n /dev/fd/7 true 2>/dev/null 7<"$folder" && [[ -e $folder ]]; then rm -rf "${folder%/lock}"; fi
    done
    for folder in "$own"/*/; do                       # a task killed before it had its lock left no results
        [[ $folder != *.inputs/ && ! -e ${folder}lock && $(find "$folder" -maxdepth 0 -mmin +5) ]] || continue
        rmdir "${folder}out" || true
        [[ -e ${folder}out ]] || rm -rf "$folder"
    done 2>/dev/null
    for folder in "$own"/*.inputs; do
        tasks=("${folder%inputs}"*/lock)              # the pattern itself if there are none
        [[ ${tasks[0]} != "${folder%inputs}*/lock" ]] || rm -rf "$folder"
    done
}
leave_scratch() {
    exec 9>&-
    if [[ $shared ]] && lock 3; then clean_scratch; flock -u 8; fi  # the last task of a run removes its inputs
}
finish() {
    local status=$? kept='' text child
    [[ $BASHPID == "$$" || ${1:-} == orphaned ]] || exit "$status"  # a subshell of a trap may have this trap, too
    trap - EXIT
    trap '' TERM INT USR1 USR2
    if [[ $worker ]]; then end_worker 20; fi
    for child in $worker $ender $sync $watch; do
        if kill "$child"; then wait "$child" || true; fi
    done 2>/dev/null
    if [[ $work ]]; then
        if [[ $stage == scratch ]] || rmdir "$work/out" 2>/dev/null || bring_last || bring_last; then  # an empty folder has no results
            rm -rf "$work" || true
        else
            if [[ -d $work/out && $scheduler == sge && $work == "${TMPDIR:-${TMP:-/}}"/* ]]; then
                text="results could not be copied to $home, and Grid Engine removes $scratch with the job"
            elif [[ -d $work/out ]]; then
                kept=$work text="results could not be copied to $home"
                rm -rf "$work/lock" "$work/inputs"    # a folder without a lock goes once a later try of the point is good
                ln -s "$home" "$work/home" || true
            else
                text="$work was removed before all results were at home"
            fi
            # Grid Engine removes the folder of a script that was killed; else the first cause is the outcome.
            [[ $signal == KILL && ! $kept ]] || outcome=${outcome:-stage_out}
            echo "job.sh: ${outcome:+$outcome: }$text${kept:+; they are kept in $HOSTNAME:$kept}" >&2 || true
            message=${message:+$message; }$text
            ((status)) || status=73
            rm -f "$home/record.json" || true         # it may have come without the rest, and would be a success
        fi
        leave_scratch || true
    fi
    if ((status == 0)); then                          # a try succeeds only if the worker ran
        if [[ $stage == run ]]; then stage='done'; elif [[ $outcome != pruned ]]; then status=1; fi
    fi
    text=$(printf '%s\n' "status=$status" "stage=$stage" "outcome=$outcome" "signal=$signal" \
        "message=$message" "because=$because" "scratch=$kept" "host=$HOSTNAME")
    printf '%s\n' "$text" 1<>"$home/exit.part" &&          # in place: a full home has this reserved space
        truncate -s "$(wc -c <<<"$text")" "$home/exit.part" && mv "$home/exit.part" "$home/exit" || true
    case $outcome in
        pruned | stopped) ;;                          # tasks that begin later look for all other outcomes
        *) grep -qs '"outcome": "ok"' "$home/record.json" ||
            { mkdir -p "$run/flags" && touch "$run/flags/$point-$try"; } ;;
    esac || true
    # What earlier tries of this point kept on this node is of no use once its results are at home.
    if [[ $scheduler != hand ]] && grep -qs '"outcome": "ok"' "$home/record.json"; then
        for kept in "$own/stanza-20260101-120000-beef".*/home; do
            home=$(readlink "$kept") && [[ $home == "$run/results/$point_id/"* ]] || continue
            sed -i 's/^scratch=.*/scratch=/' "$home/exit" && rm -rf "${kept%/home}" || true
        done
    fi
    case $status in 99 | 100) status=98 ;; esac       # Grid Engine would reschedule the task or hold it in error
    exit "$status"
}
trap finish EXIT
orphaned() {                                          # the script was killed outright, so the worker must end
    signal=KILL message='the job script was killed'
    printf '%-15s\n' "$signal" 1<>"$work/signal" || true
    end_worker 20                          # its GPU may now belong to another job
    worker='' sync=''
    (exit 137) || finish orphaned
}
on_signal() {
    signal=${signal:-$1}
    [[ $worker ]] || exit 143
    printf '%-15s\n' "$signal" 1<>"$work/signal" || true    # in place: scratch may be full
    kill -TERM "$worker" 2>/dev/null || true          # the worker writes its results so far, then ends
    [[ $ender ]] || {                                 # in case it does not: copies home what there is
        (trap '' USR1 USR2; trap exit TERM; bring_home || true
        if [[ $signal == USR1 ]]; then end_worker 40; else end_worker 20; fi) 8<&- 9<&- &
        ender=$!
    }
}
trap 'on_signal USR1' USR1                            # the walltime is near
trap 'on_signal USR2' USR2                            # Grid Engine is about to kill the job
trap 'on_signal TERM' TERM                            # cancelled, or preempted
trap 'on_signal INT' INT

# What this round begins after must have ended well: one task asks, for the scheduler may not know.
if [[ $scheduler != hand && -f $run/after-$round.sh ]]; then
    answer=$(bash "$run/after-$round.sh") || answer="$HOSTNAME cannot ask what this run begins after: see the log"
    [[ $answer == ok ]] || fail dependency "$answer"
fi

# Makes a folder for this task on this node's scratch, in a folder that only this user can enter. The tasks
# of a run share their inputs there. Each task locks its folder while it runs.
scratch="${SLURM_TMPDIR:-${TMPDIR:-/tmp}}"
for program in df mktemp stat truncate; do
    command -v "$program" >/dev/null || fail environment "$program is not on PATH on $HOSTNAME"
done
mkdir -p "$scratch" || fail scratch_full "cannot make a folder in $scratch"
read -r owner mode < <(stat -Lc '%u %A' "$scratch")
((owner == 0 || owner == EUID)) ||
    fail scratch_full "$scratch belongs to user $owner, who can change the files in it: name another in the site file"
[[ $mode != ????????w[x-]* ]] ||
    fail scratch_full "$scratch is open to all ($mode) without the sticky bit, so that others can change the files in it: name another in the site file"
own=$scratch/jobkit-$EUID-$HOSTNAME
mkdir -m 700 "$own" 2>/dev/null || true
if [[ $(stat -c '%u %A' "$own") != "$EUID "drwx--[-S]--- ]]; then
    alone "$own is not a folder that only user $EUID can enter"
elif ! { exec 8>>"$own/lock" && lock 300 && ! flock -n "$own/lock" true; }; then  # two tasks must not hold one lock
    alone "no file in $own can be locked"
else
    shared=yes
    clean_scratch || true
fi
{ work=$(mktemp -d "$own/stanza-20260101-120000-beef.$job.${task:-$point}.XXXXXX") && mkdir "$work/out" && touch -d @0 "$work/since" &&
    printf '%15s\n' '' >"$work/signal" && exec 9>"$work/lock"; } ||
    fail scratch_full "cannot make a folder in $own"
inputs=$work/inputs
if [[ $shared ]]; then
    flock -n 9
    flock -u 8
    inputs=$own/stanza-20260101-120000-beef.inputs
fi
free=$(df --output=avail -B1 "$work" | tail -n 1)
((free > 82273864)) || fail scratch_full "$scratch has $free bytes free and 82273864 are needed"

# The environment. The hooks of conda and modules read unset variables, so `set -u` is off meanwhile.
stage=environment why=''
activate() {
    set +u
    ulimit -n 4096 || return
    set -u
}
activate || fail environment "${why:-the environment could not be activated; the log has the reason}"
export PYTORCH_ALLOC_CONF=expandable_segments:True
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
export JOBKIT_GPUS=1
export JOBKIT_MEMORY=8589934592
export JOBKIT_RECORD='SLURM_JOB_PARTITION SLURM_JOB_NODELIST SLURM_CPUS_PER_TASK'
export NOTE='it'"'"'s quoted'
cannot_import="$python cannot import jobkit on $HOSTNAME"
answer=$("$python" -c 'from importlib.util import find_spec; import jobkit.worker; print("" if find_spec("stanza") else "no")') || fail environment "$cannot_import"
[[ ! $answer ]] || fail environment "$python has no module stanza on $HOSTNAME"

# The results of other points may make this one unnecessary: then it ends here, before it copies anything.
stage=gate
if [[ $scheduler != hand && -d $run/flags ]]; then
    answer=$("$python" -m jobkit.worker.skip_check "$run" "$point" "$round" --prune --stop-after 2) ||
        fail environment "$python cannot run jobkit.worker.skip_check on $HOSTNAME"
    if [[ $answer ]]; then
        read -r outcome because message <<<"$answer"
        echo "job.sh: $outcome: $message" >&2 || true
        exit 0
    fi
fi

# Copies the inputs: the first task of the run on this node does it for all, under the lock. The worker
# compares them with the plan.
stage=stage_in
fetch() {                                             # WHAT FROM... TO
    local error what=$1
    shift
    error=$(LC_ALL=C copy "$@" 2>&1) && return
    echo "$error" >&2 || true
    case $error in
        *'No space left'* | *'quota exceeded'*) fail scratch_full "$what does not fit into $inputs" ;;
        *) fail stage_in "$what could not be copied to $inputs" ;;
    esac
}
if [[ $shared ]] && ! lock 300; then
    alone "another task has held the lock for five minutes"
    inputs=$work/inputs
fi
if [[ ! -e $inputs/complete ]]; then
    mkdir -p "$inputs/model" || fail scratch_full "cannot make a folder in $own"
    fetch "the text" '/data/a text.txt' "$inputs/text"
    fetch "the model" /cache/models/en/en /cache/models/en/resources.json "$inputs/model/"
    touch "$inputs/complete"
fi
if [[ $shared ]]; then flock -u 8; fi

# Runs the worker in the background, so that traps run at once; copies results home every 30 s.
stage=run
copier=$(copier 2>/dev/null || true)                   # empty if the template has its own copy
(trap '' USR1 USR2; exec "$python" -m jobkit.worker --points "$run/points.jsonl" --point "$point" --try "$try" \
    --inputs "$inputs" --out "$work/out" --signal-file "$work/signal" \
    --scheduler "$scheduler" --job "$job" --task "$task" --restart "$restart" --copier "$copier") 8<&- &
worker=$!
if [[ $limit ]]; then                                 # the walltime of this point in a task of several
    (trap '' USR1 USR2; trap 'kill $! 2>/dev/null; exit' TERM
    sleep $((limit > SECONDS + 60 ? limit - SECONDS - 60 : 1)) & wait $!; kill -USR1 $$
    sleep 60 & wait $!; kill -KILL "$worker") 8<&- 9<&- &
    watch=$!
fi
(
    trap '' USR1 USR2
    trap 'kill $! 2>/dev/null; exit' TERM
    own() { ! read -r _ _ _ parent _ <"/proc/$BASHPID/stat" || [[ $parent == "$$" ]]; }
    while sleep 30 8<&- 9<&- & wait $!; own; do bring_home || true; done
    orphaned
) &
sync=$!
status=0
wait "$worker" || status=$?
while kill -0 "$worker" 2>/dev/null; do               # a trap interrupted the wait
    status=0
    wait "$worker" || status=$?
done
if ((status)) && [[ -d $work/out && ! -e $work/out/record.json ]]; then  # is scratch full, or a package missing?
    { printf '%65536s' '' >"$work/room"; } 2>/dev/null || fail scratch_full "$work is full"
    if [[ ! $signal ]] && ! "$python" -c 'import jobkit.worker.work'; then
        stage=environment
        fail environment "$cannot_import"
    fi
fi
(exit "$status")                                      # the worker's status is also the script's
