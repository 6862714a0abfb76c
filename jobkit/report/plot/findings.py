"""What a panel shows, as the sentence that is its title: in the pictures and in the HTML report. Pure."""

from __future__ import annotations

from jobkit.core.figures import MIN
from jobkit.core.units import format_bytes_gib
from jobkit.fit.speed import SPEED_TOLERANCE
from jobkit.report.plot import memory_data
from jobkit.report.plot.data import EnergyPanel, KnobPanel
from jobkit.report.plot.memory_data import MemoryPanel
from jobkit.report.plot.search_data import PLAIN_LOOP, SearchPanel

NEAR = f"within {100 * SPEED_TOLERANCE:.0f} % of the fastest"


THOUSAND = 1000


def memory_finding(panel: MemoryPanel) -> str:
    """Return what a panel of memory shows."""
    marks = {mark.kind: mark for mark in panel.marks}
    room = f" in {format_bytes_gib(panel.limit.size_bytes, 1)}" if panel.limit else ""
    verified, predicted = marks.get(memory_data.VERIFIED), marks.get(memory_data.PREDICTED)
    if verified and ", " in verified.name:
        return f"Memory: {verified.name.partition(', ')[2]} fits{room}, predicted and verified"
    if predicted and ", " in predicted.name:
        return f"Memory: {predicted.name.partition(', ')[2]} fits{room}, by the prediction"
    if exceeded := marks.get(memory_data.EXCEEDED):
        return f"Memory: {exceeded.name}"
    measured = panel.spots(memory_data.MEASURED)
    if not measured:
        return "Memory: not measured"
    return f"Memory: {panel.up} of at most {format_bytes_gib(max(size for _, size in measured))}"


def speed_finding(panel: KnobPanel) -> str:
    """Return what a panel of speed shows."""
    if panel.knee is None:
        return f"Speed: {panel.why}"
    size, mean = panel.knee
    knob = panel.knob.replace("_", " ")
    if len(panel.sizes) == 1:
        best = max(panel.series, key=lambda line: max(mean.value for mean in line.means)).name
        which = f"{best}, {knob} {size:,}" if best else f"{knob} {size:,}"
        return f"Speed: {mean:,.4g} paragraphs/s at {which}"
    if size == max(panel.sizes):
        return f"Speed: no knee up to {knob} {size:,}, the largest measured and the fastest"
    return f"Speed: the knee is at {knob} {size:,}, {_gain(panel, mean) or NEAR}"


def search_finding(panel: SearchPanel) -> str:
    """Return what a panel of a search shows."""
    answer = panel.answer
    if answer is None:
        fastest = panel.rows[0]
        return f"Speed: {fastest.name} is the fastest so far, {rate_words(fastest.last.value)}"
    speed = rate_words(answer.last.value)
    if panel.loop is None or answer.name == PLAIN_LOOP:
        return f"Speed: the answer has {speed}"
    return f"Speed: the answer has {speed}, the plain loop {rate_words(panel.loop.value)}"


def rate_words(items_per_s: float) -> str:
    """Return a speed in few digits."""
    return (
        f"{items_per_s:,.0f} paragraphs/s" if items_per_s >= THOUSAND else f"{items_per_s:,.4g} paragraphs/s"
    )


def _gain(panel: KnobPanel, mean: float) -> str:
    """Return how many times as fast as the smallest size the knee is; empty if that is unknown."""
    if len(panel.series) > 1 or (slowest := panel.series[0].means[0].value) == mean:
        return ""
    return f"{mean / slowest:.2g} times as fast as {panel.series[0].sizes[0]:,}"


def figure_finding(panel: KnobPanel) -> str:
    """Return what a panel of any other figure shows: its best mean, if more or less is better."""
    which = "lowest" if panel.figure.direction == MIN else "highest"
    return f"{panel.figure.title}: {panel.best:,.4g} is the {which} mean"


def energy_finding(panel: EnergyPanel) -> str:
    """Return what a panel of energy shows."""
    cheapest = min(panel.spots, key=lambda spot: spot.joules)
    return f"Energy: least at {cheapest.setting}, {cheapest.joules:,.4g} J per 1,000 paragraphs"
