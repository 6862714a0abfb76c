"""The spec that `jobkit init` writes, each choice with where it is from. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from jobkit.core.units import format_bytes_gib, format_size
from jobkit.schedulers.parsing import as_walltime
from jobkit.schedulers.survey import Counted, Survey
from jobkit.setup.starter_choice import Choice
from jobkit.setup.starter_site import cluster_of
from jobkit.setup.starter_yaml import WORD, Setting, line, scalar, word

SPEC_NAME = "first.yaml"


def spec_text(survey: Survey, choice: Choice, setting: Setting) -> str:
    """Return the spec to start from."""
    where = cluster_of(survey) if setting.site_file else "this machine"
    lines = [
        f"# A first sweep on {where}, written by jobkit init on {setting.date}. Every key: jobkit help spec",
        f"#   jobkit doctor {SPEC_NAME}              is all there that it needs?",
        f"#   jobkit sweep {SPEC_NAME} --dry-run     every word of what would be submitted",
        f"#   jobkit sweep {SPEC_NAME} --wait        does it, and prints the table",
        "name: first",
        line("workload: stanza-ner", "or count: no model, no torch, done in seconds"),
        line("text: sample:300", "generated paragraphs; or your own: a path, UTF-8, blank lines between"),
        "model:",
        "  name: en",
        line("  size: tiny", "a small stand-in; leave it out for en itself (jobkit models fetch en)"),
        line("  fallback: stand-in", "built where en is not there"),
        "sweep:",
        line("  batch_size: [5, 20, 60, 150]", "paragraphs a call"),
        line("repeats: 1", "3 for figures with a spread"),
        line(f"scheduler: {setting.scheduler}", setting.why),
        line(f"site: {scalar(setting.site)}", setting.site_file),
        "resources:",
        *_queue(choice, survey),
        line(
            f"  gpus: {choice.gpus}", "for one point" if choice.gpus else "none is known of: it runs on CPUs"
        ),
        *_gpu_type(choice),
        line(f"  cpus: {choice.cpus}", _told_cpus(choice)),
        line(f"  memory: {format_size(choice.memory_bytes)}", _told_memory(choice)),
        line(f'  walltime: "{as_walltime(choice.walltime_s)}"', _told_walltime(choice, survey)),
        *_charged(choice, survey),
        line("max_parallel: 4", "tasks at a time: be a good neighbour"),
    ]
    return "\n".join(lines) + "\n"


def _queue(choice: Choice, survey: Survey) -> Iterator[str]:
    if (name := word(choice.queue)) != "null":
        yield line(f"  queue: {name}", f"the site file lists the {survey.queue_noun}s that there are")


def _gpu_type(choice: Choice) -> Iterator[str]:
    if choice.queue is None or choice.gpu_type is None:
        return
    others = [kind for kind in choice.queue.gpus if kind and kind != choice.gpu_type]
    told = f"there are also: {', '.join(others)}; points on different cards cannot be compared"
    yield line(f"  gpu_type: {scalar(choice.gpu_type)}", told if others else "the only type there")


def _told_cpus(choice: Choice) -> str:
    one = choice.gpu_resource
    if choice.gpus and one is not None and one.counted is Counted.SLOT:
        return f"{one.name} is counted for each slot: 2 CPUs would take 2 GPUs"
    return f"a node has {choice.queue.cpus}" if choice.queue and choice.queue.cpus else ""


def _told_memory(choice: Choice) -> str:
    most = choice.queue.memory_bytes if choice.queue else None
    return f"a node has {format_bytes_gib(most, 1)}" if most else ""


def _told_walltime(choice: Choice, survey: Survey) -> str:
    if choice.queue is None:
        return "for one point"
    longest = choice.queue.walltime_s
    limit = "no limit" if longest is None else f"at most {as_walltime(longest)}"
    return f"for one point; {choice.queue.name} has {limit} ({survey.walltime_noun})"


def _charged(choice: Choice, survey: Survey) -> Iterator[str]:
    if choice.account is not None and WORD.fullmatch(choice.account):
        others = [one for one in survey.accounts or () if one != choice.account]
        also = f"; there are also: {', '.join(others)}" if others else ""
        yield line(f"  account: {scalar(choice.account)}", f"every job must name one{also}")
