"""How the schedulers of the practice clusters spell a request, for the site files of tests."""

from __future__ import annotations

REQUESTS = {
    "slurm": 'queue: "--partition={queue}", cpus: "--cpus-per-task={cpus}", memory: "--mem={memory}", '
    'walltime: "--time={walltime}", gpus: "--gres=gpu:{gpus}"',
    "sge": 'queue: "-q {queue}", cpus: "-pe smp {cpus}", memory: "-l h_vmem={memory}", '
    'walltime: "-l h_rt={walltime}", gpus: "-l ngpus={gpus}"',
}
"""What stands between the braces of ``requests: {...}``."""
EXCLUDE = {"slurm": 'exclude: "--exclude={exclude}"', "sge": 'exclude: "-l h=!({exclude_bars})"'}
