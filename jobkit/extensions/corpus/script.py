"""What the job script of a shard has beyond that of another point."""

from __future__ import annotations

from jobkit.core.layout import WINNERS_FOLDER
from jobkit.extensions.corpus.plan import MANIFEST_FILE
from jobkit.planning.job_script import Claim, PointScript

SCRIPT = PointScript(
    text_sizes=2,  # of the rows; the tagger wrote 1.4 (benchmarks/shards.py)
    claim=Claim(module="jobkit.extensions.corpus.winners", manifest=MANIFEST_FILE, folder=WINNERS_FOLDER),
)
