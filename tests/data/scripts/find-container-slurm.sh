#!/bin/bash
#SBATCH --job-name=stanza-20260101-120000-beef
#SBATCH --output=/home/ada/runs/stanza-20260101-120000-beef/logs/%A_%a.out
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@60
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=2
#SBATCH --mem=8G
#SBATCH --time=00:10:00
#SBATCH --nodes=1
#SBATCH --ntasks=1
#
# Runs after the sweep stanza: predicts the largest batch and tests it, with three batches at most.
set -euo pipefail

run=/home/ada/runs/stanza-20260101-120000-beef
python=python3
export JOBKIT_PARENT=$$                               # the trials may be forked from one parent, which ends with this script
# Forwards signals to the running point, which copies its results home.
child='' signalled=''
forward() {
    signalled=$1
    if [[ $child ]]; then kill "-$1" "$child" 2>/dev/null || true; fi
}
trap 'forward USR1' USR1                              # the walltime is near
trap 'forward USR2' USR2                              # Grid Engine is about to kill the job
trap 'forward TERM' TERM                              # cancelled, or preempted
trap 'forward TERM' INT                               # a background command of bash ignores INT
forwarding() {                                        # runs a command in the background, so that traps run at once
    local status=0
    "$@" &
    child=$!
    [[ -z $signalled ]] || forward "$signalled"       # the signal came before the command started
    wait "$child" || status=$?
    while kill -0 "$child" 2>/dev/null; do            # a trap interrupted the wait
        status=0
        wait "$child" || status=$?
    done
    child=''
    return "$status"
}

container=(false) why=''
enter_container() {                                   # "${container[@]}" runs a command in the container
    local engine path
    engine=$(type -P apptainer || type -P singularity) ||
        { why="neither apptainer nor singularity is on PATH on $HOSTNAME"; echo "$why" >&2; return 1; }
    [[ -e '/images/my image.sif' ]] || { why="there is no image "'/images/my image.sif'" on $HOSTNAME"; echo "$why" >&2; return 1; }
    container=("$engine" exec --nv)
    for path in "$run" "${own:-}" '/data/a text.txt' /cache/models/en; do
        [[ ! -e $path ]] || container+=(--bind "$path")
    done
    container+=('/images/my image.sif' sh -c 'trap "" USR1 USR2; exec "$@"' sh)  # Go's runtime takes signals that were ignored
    unset JOBKIT_PARENT                               # a parent of several tries would lose its image with the first
}
activate() {
    set +u
    : || return
    set -u
    enter_container
}
activate
export PYTORCH_ALLOC_CONF=expandable_segments:True
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
export JOBKIT_GPUS=1
export JOBKIT_MEMORY=8589934592
export JOBKIT_RECORD='SLURM_JOB_PARTITION SLURM_JOB_NODELIST SLURM_CPUS_PER_TASK SINGULARITY_CONTAINER'

# Each call reads the results so far, and prints the number of the next point, or nothing.
while [[ -z $signalled ]] && next=$("${container[@]}" "$python" -m jobkit.answers.search "$run") && [[ $next ]]; do
    forwarding bash "$run/job.sh" --point "$next" || true
    [[ ! -s $run/after-1.txt || $(<"$run/after-1.txt") == ok ]] || exit 1  # what the run begins after did not end well
done
[[ -z $signalled ]] || exit 143
