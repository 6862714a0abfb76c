from __future__ import annotations

from dataclasses import replace

import pytest

from jobkit.core.units import GIB
from jobkit.schedulers.survey import Queue, Survey
from jobkit.setup.init import choose, cpu_queue, gpu_queue, spelt
from jobkit.spec.site import Requests, load_site
from tests.support.surveys import captured, survey_of

LAB, OTHER = survey_of("slurm", "lab"), survey_of("slurm", "other")
GRID = survey_of("sge", "lab")
GRID_OTHER = survey_of("sge", "other", projects=captured("sge/other-projects"))


def test_the_default_partition_where_it_has_gpus() -> None:
    choice = choose(LAB)

    assert choice.queue is not None
    assert (choice.queue.name, choice.gpus, choice.gpu_type) == ("cpu", 1, "v100")
    assert choice.cpu_queue == choice.queue
    assert (choice.cpus, choice.memory_bytes, choice.walltime_s) == (2, 4 * GIB, 600)
    assert choice.account is None


def test_a_site_with_gpus_in_some_partitions() -> None:
    choice = choose(OTHER)

    assert choice.queue is not None
    assert choice.cpu_queue is not None
    assert (choice.queue.name, choice.cpu_queue.name) == ("gpu", "batch")
    assert (choice.gpus, choice.gpu_type, choice.memory_bytes) == (1, "a100", 8 * GIB)


def test_a_queue_that_is_settled_already() -> None:
    choice = choose(OTHER, "gpu-short")

    assert choice.queue is not None
    assert choice.queue.name == "gpu-short"
    assert choose(OTHER, "batch").gpus == 0
    assert choose(OTHER, "no-such").queue == choose(OTHER).queue


def test_grid_engine() -> None:
    choice = choose(GRID)

    assert choice.queue is not None
    assert choice.cpu_queue is not None
    assert (choice.queue.name, choice.cpu_queue.name) == ("gpu.q", "serial.q")
    assert (choice.environment, choice.cpus) == ("smp", 1), "ngpus is counted for each slot"
    assert choice.gpu_type is None


def test_grid_engine_where_gpus_are_counted_for_the_job_and_projects_are_a_must() -> None:
    choice = choose(GRID_OTHER)

    assert choice.queue is not None
    assert (choice.queue.name, choice.environment, choice.cpus) == ("gpu.q", "threads", 2)
    assert (GRID_OTHER.memory[0].name, choice.account) == ("h_vmem", "nlp")


def test_grid_engine_without_an_environment_of_one_node() -> None:
    assert choose(replace(GRID_OTHER, one_node=())).cpus == 1


@pytest.mark.parametrize("queues", [None, (), (Queue(name="shut", closed="it is down"),)])
def test_where_no_queue_is_known(queues: tuple[Queue, ...] | None) -> None:
    choice = choose(Survey(product="Slurm", queues=queues, one_node=("smp",)))

    assert (choice.queue, choice.cpu_queue, choice.gpus) == (None, None, 0)
    assert (choice.memory_bytes, choice.walltime_s, choice.cpus) == (8 * GIB, 600, 2)


def test_small_nodes_and_short_queues() -> None:
    small = Queue(name="tiny", cpus=1, memory_bytes=2 * GIB + 5, walltime_s=120)
    choice = choose(Survey(product="Slurm", queues=(small,)))

    assert (choice.cpus, choice.memory_bytes, choice.walltime_s) == (1, 2 * GIB, 120)
    least = choose(Survey(product="Slurm", queues=(replace(small, memory_bytes=1000),)))
    assert least.memory_bytes == GIB


def test_the_order_of_gpu_queues() -> None:
    queues = [
        Queue(name="bought", gpus={"": 8}, only="groups nlp"),
        Queue(name="all", gpus={"": 2}, nodes=50),
        Queue(name="gpu-small", gpus={"": 1}, nodes=2),
        Queue(name="gpu-large", gpus={"": 1}, nodes=9),
        Queue(name="cpu"),
    ]
    names = []
    while found := gpu_queue(queues):
        names.append(found.name)
        queues.remove(found)

    assert names == ["gpu-large", "gpu-small", "all", "bought"]
    assert cpu_queue(queues) == Queue(name="cpu")


def test_the_default_account_where_every_job_must_name_one() -> None:
    strict = replace(LAB, must_charge=True)

    assert choose(strict).account == "root"
    assert choose(replace(strict, account="", accounts=None)).account is None


def test_what_a_site_has_no_line_for_is_not_chosen() -> None:
    choice = replace(choose(OTHER), account="nlp")
    assert spelt(choice, Requests()).queue is None
    bare = spelt(choice, Requests())
    assert (bare.gpus, bare.gpu_type, bare.cpus, bare.account) == (0, None, 1, None)
    assert spelt(choice, load_site("slurm-default", "slurm").requests) == choice
