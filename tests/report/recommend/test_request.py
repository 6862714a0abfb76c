from __future__ import annotations

from jobkit.report.recommend.material import lines
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import Resources


def test_elsewhere_names_of_a_site_are_left_out() -> None:
    resources = Resources(
        gpu_type="a100", account="nlp", qos="high", queue="gpu", options={"sge": ["-p -10"]}
    )
    found = lines(resources, load_site("sge-default", "sge"), own=False)
    assert found.lines == ("#$ -l ngpus=1", "#$ -pe smp 2", "#$ -l h_vmem=4G", "#$ -l h_rt=00:10:00")
