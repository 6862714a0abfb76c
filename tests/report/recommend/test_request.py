from __future__ import annotations

from jobkit.answers.speed import CorpusVolume
from jobkit.report.recommend.advice import Advice, recommend
from jobkit.report.recommend.material import lines
from jobkit.report.recommend.output import answer
from jobkit.schedulers.survey import Queue, asked_for
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import Resources
from tests.support.recommendations import material, records


def test_elsewhere_names_of_a_site_are_left_out() -> None:
    resources = Resources(
        gpu_type="a100", account="nlp", qos="high", queue="gpu", options={"sge": ["-p -10"]}
    )
    found = lines(resources, load_site("sge-default", "sge"), own=False)
    assert found.lines == ("#$ -l ngpus=1", "#$ -pe smp 2", "#$ -l h_vmem=4G", "#$ -l h_rt=00:10:00")


def test_a_request_that_no_queue_allows_is_that_of_a_job_of_apply() -> None:
    of, corpus, hour_s = material(records()), CorpusVolume(paragraphs=20_000_000), 3600

    def asked(limit_s: float | None) -> Advice:
        queues = asked_for("gpu", [Queue(name="gpu", walltime_s=limit_s)], "partition")
        return recommend(of, corpus=corpus, queues=lambda: queues)

    whole, allowed, cut = (asked(limit_s).request for limit_s in (None, 1000 * hour_s, hour_s))
    assert whole
    assert whole == allowed
    assert cut
    assert cut.walltime_s <= hour_s < whole.walltime_s
    assert asked(hour_s).time.expected_s / cut.jobs < cut.walltime_s
    said = [line for block in answer(asked(hour_s)) for line in block.before]
    assert f"  #SBATCH --time={cut.walltime_s // 3600:02}:{cut.walltime_s // 60 % 60:02}:00" in map(str, said)
    assert any("is longer than partition 'gpu' allows (01:00:00)" in str(line) for line in said)
