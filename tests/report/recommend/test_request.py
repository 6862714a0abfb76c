from __future__ import annotations

from dataclasses import replace

from jobkit.answers.speed import Duration
from jobkit.core.measurements import MemoryReadings
from jobkit.core.records import JobFacts
from jobkit.core.units import GIB
from jobkit.report.recommend.request import enough, lines, request, used_ram
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import Resources
from tests.support.builders import point, record
from tests.support.recommendations import material, records

TIME = Duration(expected_s=100, low_s=90, high_s=250, start_s=5, repeats=3)


def test_margins_and_steps() -> None:
    asked = Resources(gpus=1, cpus=3)
    found = enough(asked, peak_bytes=2 * GIB, longest_s=250, gpus=1)
    assert (found.memory, found.walltime, found.cpus) == (3 * GIB, 600, 3)
    assert enough(asked, peak_bytes=int(2.5 * GIB), longest_s=240, gpus=0) == found.model_copy(
        update={"gpus": 0, "walltime": 300}
    )
    assert enough(asked, peak_bytes=None, longest_s=None, gpus=1) == asked


def test_elsewhere_names_of_a_site_are_left_out() -> None:
    resources = Resources(
        gpu_type="a100", account="nlp", qos="high", queue="gpu", options={"sge": ["-p -10"]}
    )
    found = lines(resources, load_site("sge-default", "sge"), own=False)
    assert found.lines == ("#$ -l ngpus=1", "#$ -pe smp 2", "#$ -l h_vmem=4G", "#$ -l h_rt=00:10:00")


def test_on_slurm_the_page_cache_counts() -> None:
    told = replace(record(point()), memory=MemoryReadings(maxrss_bytes=GIB, cgroup_peak_bytes=3 * GIB))
    assert used_ram(told) == 3 * GIB
    assert used_ram(replace(told, job=JobFacts(scheduler="sge"))) == GIB
    assert used_ram(replace(told, memory=MemoryReadings())) is None


def test_a_request_has_lines_of_the_own_site_or_of_both_plain_ones() -> None:
    told = records(repeats=1)
    found = request(material(told), told[0], TIME)
    assert found is not None
    (own,) = found.lines
    assert (own.scheduler, own.own) == ("slurm", True)
    without = request(replace(material(told), site=None), told[0], TIME)
    assert without is not None
    assert [(lines.scheduler, lines.own) for lines in without.lines] == [("slurm", False), ("sge", False)]
    assert "#SBATCH --account=nlp" in own.lines


def test_without_an_upper_end_the_mean_has_to_do_and_on_a_cpu_no_gpu_is_asked_for() -> None:
    of_cpu = [replace(one, point=replace(one.point, device="cpu")) for one in records(repeats=1)]
    mean = replace(TIME, low_s=None, high_s=None)
    alone = replace(material(of_cpu), site=None, seconds=())
    found = request(alone, of_cpu[0], mean)
    assert found is not None
    assert (found.gpus, found.walltime_s, found.used_s) == (0, 300, None)
    assert [line.own for line in found.lines] == [False, False]
    assert not any("gpu" in line for one in found.lines for line in one.lines)
