#!/bin/bash
# Runs on this machine: jobkit starts it once a point, one at a time.
#
# One point of the sweep stanza: inputs to this node's scratch, run, results home.
#   under the scheduler    task k runs point k (point k + N where it was submitted with --offset N)
#   by hand                bash job.sh 3        runs point 3, right here
set -euo pipefail

run=/tmp/runs/stanza-20261121-034922-0192
python=/opt/torch/.venv/bin/python3
scheduler=local job=${JOBKIT_JOB:-} task=${JOBKIT_TASK:-} restart=0
case ${1:-} in
    --offset) point=$((task + $2)) ;;
    "") point=$task ;;
    *) point=$1 scheduler=hand job=$$ task='' ;;
esac
point_id=$(sed -n "${point}s/.*\"point_id\": \"\([^\"]*\)\".*/\1/p" "$run/points.jsonl" || true)
[[ $point_id ]] || { echo "job.sh: no point '$point' in $run/points.jsonl; say: bash job.sh K" >&2; exit 2; }

# A folder for this try, never the same twice: nothing is overwritten.
try=1
mkdir -p "$run/results/$point_id"
until mkdir "$run/results/$point_id/try-$try" 2>/dev/null; do
    [[ -d $run/results/$point_id/try-$try ]] || { echo "job.sh: cannot write in $run/results" >&2; exit 1; }
    try=$((try + 1))
done
home=$run/results/$point_id/try-$try

# Whatever happens next: results come home, the exit status is kept, scratch goes last.
stage=scratch outcome='' message='' signal='' work='' inputs='' worker='' sync=''
fail() { outcome=$1 message=$2; echo "job.sh: $1: $2" >&2; exit 1; }
copy() {                                              # cp where this machine has no rsync
    if command -v rsync >/dev/null; then
        rsync -a "$@"
    else
        [[ $1 != --exclude=* ]] || shift
        cp -R --preserve=mode,timestamps "${@/%\//\/.}"
    fi
}
bring_home() { copy --exclude='*.part' "$work/out/" "$home/"; }
leave_scratch() {                                     # the last task out removes the shared inputs
    rm -rf "$work"
    exec 9<&-
    if [[ -d $inputs ]] && flock 8 && exec 9<"$inputs" && flock -n 9; then rm -rf "$inputs"; fi
}
finish() {
    local status=$? kept=''
    trap - EXIT
    trap '' TERM INT USR1 USR2
    for child in $worker $sync; do
        if kill "$child"; then wait "$child" || true; fi
    done 2>/dev/null
    if [[ $work ]]; then
        if bring_home || bring_home; then
            leave_scratch || true
        else
            kept=$work outcome=stage_out message="results could not be copied to $home"
            ((status)) || status=1
        fi
    fi
    if [[ $stage == run && $status == 0 ]]; then stage='done'; fi
    printf '%s\n' "status=$status" "stage=$stage" "outcome=$outcome" "signal=$signal" \
        "message=$message" "scratch=$kept" "host=$HOSTNAME" >"$home/exit.part" && mv "$home/exit.part" "$home/exit"
    case $status in 99 | 100) status=98 ;; esac       # Grid Engine takes these two for orders
    exit "$status"
}
trap finish EXIT
on_signal() {
    signal=${signal:-$1}
    [[ $worker ]] || exit 143
    echo "$signal" >"$work/signal"
    kill -TERM "$worker" 2>/dev/null || true          # it writes what it has, then ends
}
trap 'on_signal USR1' USR1                            # the walltime is near
trap 'on_signal USR2' USR2                            # Grid Engine is about to kill the job
trap 'on_signal TERM' TERM                            # cancelled, or preempted
trap 'on_signal INT' INT

# Scratch on this node: a folder for this task, and one for the inputs that tasks here share.
scratch="${SLURM_TMPDIR:-${TMPDIR:-/tmp}}"
{ mkdir -p "$scratch" && work=$(mktemp -d "$scratch/stanza-20261121-034922-0192.$job.${task:-$point}.XXXXXX") && mkdir "$work/out"; } ||
    fail scratch_full "no folder could be made in $scratch"
inputs=$scratch/stanza-20261121-034922-0192.inputs
free=$(df --output=avail -B1 "$work" | tail -n 1)
((free > 265213880)) || fail scratch_full "$scratch has $free bytes free and 265213880 are needed"

# Inputs in: the first task on the node copies them, under a lock, for all.
stage=stage_in
exec 8<"$scratch" && flock 8
if [[ ! -e $inputs/complete ]]; then
    mkdir -p "$inputs/model"
    copy /tmp/jk/texts/sample-3893a1c6adf0.txt "$inputs/text" || fail stage_in "the text could not be copied to $inputs"
    copy /tmp/jk/models/stand-in-full-ec6ccae0/en /tmp/jk/models/stand-in-full-ec6ccae0/resources.json "$inputs/model/" ||
        fail stage_in "the model could not be copied to $inputs"
    touch "$inputs/complete"
fi
exec 9<"$inputs" && flock -s 9                        # held for as long as this task uses them
flock -u 8

# The environment. The hooks of conda and modules read unset variables, so `set -u` waits.
stage=environment
activate() {
    set +u
    : || return
    set -u
}
activate || fail environment "the environment could not be activated; the log says why"
export PYTORCH_ALLOC_CONF=''
"$python" -c 'import jobkit.run.work' || fail environment "$python cannot import jobkit on $HOSTNAME"

# Work, in the background, so that the traps above run at once; results home every 2 s.
stage=run
(trap '' USR1 USR2; exec "$python" -m jobkit.run --points "$run/points.jsonl" --point "$point" --try "$try" \
    --inputs "$inputs" --out "$work/out" --signal-file "$work/signal" \
    --scheduler "$scheduler" --job "$job" --task "$task" --restart "$restart") &
worker=$!
(trap '' USR1 USR2; trap 'kill $!; exit' TERM; while :; do sleep 2 & wait $!; bring_home; done) &
sync=$!
status=0
wait "$worker" || status=$?
while kill -0 "$worker" 2>/dev/null; do               # a trap cut the wait short: wait on
    status=0
    wait "$worker" || status=$?
done
(exit "$status")                                      # the worker's status is the script's
