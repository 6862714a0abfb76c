#!/bin/bash
#SBATCH --job-name=letters-20261126-142847-2ae2
#SBATCH --output=/home/ada/letters/runs/letters-20261126-142847-2ae2/logs/%A_%a.out
#SBATCH --open-mode=append
#SBATCH --cpus-per-task=1
#SBATCH --mem=1G
#SBATCH --time=00:10:00
#SBATCH --nodes=1
#SBATCH --ntasks=1
#
# Runs after the sweep letters: submits points again as its policy says, or records what a person must do.
set -euo pipefail

run=/home/ada/letters/runs/letters-20261126-142847-2ae2
python=/home/ada/env/bin/python
activate() {
    set +u
    : || return
    set -u
}
activate
export JOBKIT_CONFIG=/home/ada/config
export JOBKIT_LEDGER=/home/ada/ledger
exec "$python" -m jobkit resume "$run" --follow-up
