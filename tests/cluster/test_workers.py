"""Several workers in one point, on real daemons."""

from __future__ import annotations

import json

from jobkit.core.records import Outcome
from tests.cluster.daemons import Wait
from tests.cluster.halted import seen
from tests.cluster.lab import SGE, WORKLOADS, ClusterLab
from tests.support.commands import ended_well


@SGE
def test_two_tasks_of_a_node_choose_different_gpus(lab: ClusterLab, wait_until: Wait) -> None:
    lab.site("gpus: choose\n")
    variables = {
        "PYTHONPATH": WORKLOADS / "nvml",
        "FAKE_CARD": "T4",
        "FAKE_CARDS": "2",
        "FAKE_HELD": lab.home,
    }
    command = 'touch "$CUDA_VISIBLE_DEVICES"; until [ -e go ]; do sleep 0.1; done'
    spec: dict[str, object] = {
        "name": "cards",
        "workload": {"command": f"cd '{lab.home}'; {command}; : {{kind}}", "shell": True},
    }
    spec |= {"text": "sample:20", "device": "cuda", "sweep": {"kind": ["a", "b"]}, "repeats": 1}
    spec |= {"environment": {"variables": {name: str(value) for name, value in variables.items()}}}
    spec |= {"resources": {"gpus": 1, "cpus": 1, "memory": "400MiB", "walltime": "00:02:00"}}
    ended_well(lab.sweep(lab.spec(json.dumps(spec))))
    wait_until(lambda: {path.name for path in lab.home.glob("GPU-*")} == {"GPU-0", "GPU-1"}, 60)
    (lab.home / "go").touch()
    wait_until(lambda: [one.outcome for one in seen(lab.run_dir())] == [Outcome.OK] * 2, 60)
