from __future__ import annotations

from dataclasses import replace

from jobkit.answers.speed import Duration
from jobkit.report.recommend.request import lines, request
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import Resources
from tests.support.recommendations import material, records

TIME = Duration(expected_s=100, low_s=90, high_s=250, start_s=5, repeats=3)


def test_elsewhere_names_of_a_site_are_left_out() -> None:
    resources = Resources(
        gpu_type="a100", account="nlp", qos="high", queue="gpu", options={"sge": ["-p -10"]}
    )
    found = lines(resources, load_site("sge-default", "sge"), own=False)
    assert found.lines == ("#$ -l ngpus=1", "#$ -pe smp 2", "#$ -l h_vmem=4G", "#$ -l h_rt=00:10:00")


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


def test_without_an_upper_end_it_is_twice_the_mean_and_on_a_cpu_no_gpu_is_asked_for() -> None:
    of_cpu = [replace(one, point=replace(one.point, device="cpu")) for one in records(repeats=1)]
    mean = replace(TIME, low_s=None, high_s=None)
    alone = replace(material(of_cpu), site=None)
    found = request(alone, of_cpu[0], mean)
    assert found is not None
    assert (found.gpus, found.walltime_s) == (0, 600)
    assert [line.own for line in found.lines] == [False, False]
    assert not any("gpu" in line for one in found.lines for line in one.lines)
