#!/bin/bash
#$ -S /bin/bash
#$ -cwd
#$ -N stanza-20260101-120000-beef
#$ -o /home/ada/runs/stanza-20260101-120000-beef/logs
#$ -j y
#$ -r n
#$ -notify
#$ -pe smp 1
#$ -l h_vmem=1G
#$ -l h_rt=00:10:00
#$ -P nlp
#$ -m ea -M ada@example.org
#$ -l h=!(node07|n[1-3])
#$ -ar 42
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
