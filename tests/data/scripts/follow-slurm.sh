#!/bin/bash
#SBATCH --job-name=stanza-20260101-120000-beef
#SBATCH --output=/home/ada/runs/stanza-20260101-120000-beef/logs/%A_%a.out
#SBATCH --open-mode=append
#SBATCH --cpus-per-task=1
#SBATCH --mem=1G
#SBATCH --time=00:10:00
#SBATCH --account=nlp
#SBATCH --exclude=node07,n[1-3]
#SBATCH --reservation=42
#SBATCH --nodes=1
#SBATCH --ntasks=1
#
# Runs after the sweep stanza: submits points again as its policy says, or records what a person must do.
set -euo pipefail

run=/home/ada/runs/stanza-20260101-120000-beef
python=/opt/jobkit/bin/python
activate() {
    set +u
    : || return
    set -u
}
activate
exec "$python" -m jobkit resume "$run" --follow-up
