"""What `jobkit workload check` answers: whether a workload can be measured, and what to do if not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from jobkit.answers.loads import Loads
from jobkit.answers.memory_line import FittedLine
from jobkit.core.frozen import keyed
from jobkit.core.knobs import BATCH_SIZE, CUDA
from jobkit.core.paths import cache_dir
from jobkit.core.records import ModelRef, TextRef
from jobkit.core.terminal import Say, as_json, wrap
from jobkit.core.units import MIB, format_count
from jobkit.planning.job_script import job_python
from jobkit.planning.prepare import Options, build_model, read_named, spec_folder
from jobkit.planning.texts import find_text, paragraphs_of, text_lengths
from jobkit.planning.workload_traits import JobPython, Traits, run_in_child, traits
from jobkit.setup.findings import Finding, Status, fine, missing, unknown
from jobkit.setup.workload_probe import ALLOCATED, KnobTrial, OutputDifference, Probe
from jobkit.worker.measure import nvml
from jobkit.worker.workloads.base import SHIPPED
from jobkit.worker.workloads.pairs import queries_of

SPEC_SUFFIXES = (".yaml", ".yml")
LEAST_R2, LEAST_R2_RESIDENT = 0.98, 0.9
"""The least R² with which the load explains memory; torch counts tensors, a CPU's allocator keeps more."""


WORDS = {Status.OK: "ok", Status.MISSING: "no", Status.UNKNOWN: "unknown"}
"""What an answer begins with; its hint is what to do about it."""


@keyed
class Subject:
    workload: str
    folder: str  # where jobkit looks for the user's code
    text: TextRef
    traits: Traits
    model: ModelRef | None
    device: str
    threads: int
    nan: str | None  # as in a spec
    queries: str | None  # the path of those of pairs
    python: JobPython = JobPython()


def find_subject(word: str, *, text: str, model: str, device: str, say: Say) -> Subject:
    """Return what a workload's name or a spec names; the spec's own text is not used, because it may be long.

    ``model``: ``NAME`` or ``NAME:SIZE``; empty for that of the spec, or for the small stand-in.
    """
    decided = device if device != "auto" else CUDA if nvml.list_gpus() else "cpu"
    name, _, size = model.partition(":")
    nan: str | None = "quarantine"
    queries = None
    python = JobPython()
    if word.endswith(SPEC_SUFFIXES):
        words = [f"text={text}", "text_sample=null", f"device={decided}", "scheduler=local"]
        words += [f"model.name={name}"] * bool(name) + [f"model.size={size}"] * bool(size)
        named = build_model(read_named(Path(word), Options(overrides=tuple(words)), fetch=True, say=say), say)
        named.spec.refuse_command("jobkit workload check")
        found, folder = named.spec.workload_name, spec_folder(Path(word))
        ref, chosen = named.inputs.text, named.inputs.model
        threads, nan = named.spec.threads or named.spec.resources.cpus, named.spec.nan
        queries = queries_of(named.inputs.files)
        python = job_python(named.spec.environment, named.site)
    else:
        found, folder, threads, chosen = word, str(Path.cwd()), 1, None
        ref = find_text(text, base=Path(), cache=cache_dir())
        if traits(word, folder).needs_model:
            from jobkit.planning.models import build, find  # a workload without a model starts sooner

            asked = {"name": name or "en", "size": size or "tiny", "fallback": "stand-in"}
            model_ref = find(word, asked, Path(), cache_dir())
            chosen = build(word, model_ref, cache_dir(), say=say)
    return Subject(
        workload=found,
        folder=folder,
        text=ref,
        traits=traits(found, None if found in SHIPPED else folder, None, python),
        model=chosen,
        device=decided,
        threads=threads,
        nan=nan,
        queries=queries,
        python=python,
    )


def try_out(subject: Subject, say: Say) -> Probe:
    """Run the workload in a process without network, and return what it found."""
    fields: dict[str, Any] = run_in_child(
        "jobkit.setup.workload_probe:probe",
        {
            "name": subject.workload,
            "folder": subject.folder,
            "model": subject.model and subject.model.path,
            "options": subject.model.options if subject.model else {},
            "device": subject.device,
            "threads": subject.threads,
            "queries": subject.queries,
        },
        paragraphs_of(subject.text),
        say=say,
        what=f"trying workload {subject.workload!r}",
        gpus=subject.device == CUDA,
        python=subject.python,
    )
    fields["by_size"] = [OutputDifference(**one) for one in fields["by_size"]]
    fields["again"] = OutputDifference(**fields["again"])
    fields["knobs"] = [KnobTrial(**one) for one in fields["knobs"]]
    return Probe(**fields)


def predict(subject: Subject, sizes: Sequence[int], say: Say) -> list[int]:
    """Return the largest load at each batch size by the workload's lengths; empty if it reports none."""
    lengths = text_lengths(
        subject.workload,
        subject.text,
        subject.model,
        cache=cache_dir(),
        say=say,
        folder=subject.folder,
        python=subject.python,
        queries=subject.queries,
    )
    return [Loads(lengths).own(size) for size in sizes]


def answers(probe: Probe, subject: Subject, predicted: Sequence[int]) -> list[Finding]:
    """Return all answers, in the order in which they are printed."""
    size, memory = _batch_size(probe), _memory(probe)
    return [
        fine("loads", f"in {probe.load_s:.1f} s with no network ({probe.network})"),
        size,
        *map(_knob, probe.knobs),
        memory,
        *_compared(probe),
        *_commands(probe, subject, size, memory, predicted),
    ]


def _batch_size(probe: Probe) -> Finding:
    check, pairs = f"knob {BATCH_SIZE}", zip(probe.sizes, probe.size_reported, strict=True)
    wrong = [f"{reported} at {size}" for size, reported in pairs if reported != size]
    if probe.failed:
        return missing(check, probe.failed, "fix it, or keep to smaller batches")
    if all(reported is None for reported in probe.size_reported):
        return unknown(check, "effective() does not report it", "return it from effective()")
    if wrong:
        return missing(check, f"effective() reports {', '.join(wrong)}", "cut calls by batch_size")
    return fine(check, f"effective at {', '.join(map(str, probe.sizes))}")


def _knob(knob: KnobTrial) -> Finding:
    check, values = f"knob {knob.name}", ", ".join(map(str, knob.values))
    if knob.error:
        return missing(check, f"fails at {knob.error}", "sweep values that it takes")
    effect = f"{values} differ in output or load" if knob.changes else f"{values}: same output and load"
    if all(value is None for value in knob.reported):
        if knob.changes:
            return fine(check, f"not reported; {effect}")
        return unknown(check, f"not reported; {effect}", "report it in effective()")
    pairs = zip(knob.values, knob.reported, strict=True)
    if wrong := [f"{reported} at {value}" for value, reported in pairs if reported != value]:
        return missing(check, f"effective() reports {', '.join(wrong)}", "pass it on to the framework")
    return fine(check, f"reported as set; {effect}")


def _memory(probe: Probe) -> Finding:
    check, grown = "load and memory", max(probe.peaks) - min(probe.peaks)
    exact = probe.memory == ALLOCATED
    if not all(probe.peaks):
        return unknown(check, "jobkit could read no memory", "on a GPU, import torch in the file")
    # The least growth of the memory from which a line through it means anything: the allocator keeps some
    if grown < 4 * 2**20:
        what = f"{probe.memory} memory grows by {_mib(grown)}, too little"
        return unknown(check, what, f"{_on_gpu()}, or with a longer --text")
    r2, worst = line_of(probe.loads, probe.peaks)
    r2 = round(r2, 3)  # what is printed decides
    what = f"{probe.memory} memory by the load: R² {r2:.3f}, worst residual {_mib(worst)} of {_mib(grown)}"
    if r2 >= (LEAST_R2 if exact else LEAST_R2_RESIDENT):
        return fine(check, what)
    if not exact:
        return unknown(check, what, f"a CPU's allocator keeps memory; {_on_gpu()}")
    return missing(check, what, "return the size that the framework pads to as the load")


def _on_gpu() -> str:
    return f"try --device cuda{'' if nvml.list_gpus() else ' on a machine with a GPU'}"


def _mib(size_bytes: float) -> str:
    return f"{size_bytes / MIB:,.1f} MiB"


def line_of(loads: Sequence[int], peaks: Sequence[int]) -> tuple[float, float]:
    if len({*loads}) == 1:
        return 0.0, float(max(peaks) - min(peaks))
    line, mean = FittedLine.through(loads, peaks), fmean(peaks)
    residuals = [peak - line.at(load) for load, peak in zip(loads, peaks, strict=True)]
    total = math.fsum((peak - mean) ** 2 for peak in peaks)
    return 1 - math.fsum(value**2 for value in residuals) / total, max(map(abs, residuals))


def _compared(probe: Probe) -> tuple[Finding, Finding]:
    """Return whether the output is the same at all batch sizes, and of two runs at one."""
    equal, again, sizes = "equal output", "deterministic", ", ".join(map(str, probe.sizes))
    if not (probe.rows or probe.counts):
        lack, do = "the workload returns neither rows nor a count", "return them, to compare"
        return unknown(equal, lack, do), unknown(again, lack, do)
    # Numbers that differ by less are equal: a batch is padded, and sums come in another order
    near = 1e-3
    if probe.again.distance > near:
        do = "switch off dropout and sampling, or set a seed in load"
        differ = unknown(equal, "two runs at the same batch size differ already")
        return differ, missing(again, _differing(probe.again, "two runs"), do)
    worst = max(probe.by_size, key=lambda one: (one.distance, one.paragraphs))
    between = f"batch sizes {probe.sizes[0]} and {probe.sizes[probe.by_size.index(worst)]}"
    if worst.distance == 0:
        what = "" if probe.rows else "the count is equal, and the workload returns no rows: "
        found = fine(equal, f"{what}at batch sizes {sizes}")
    elif worst.distance <= near:
        found = fine(equal, f"to {worst.distance:.0e} at batch sizes {sizes}")
    else:
        do = "check padding and masks; else count the difference and say so"
        found = missing(equal, _differing(worst, between), do)
    return found, fine(again, "two runs agree")


def _differing(difference: OutputDifference, between: str) -> str:
    if not difference.paragraphs:
        return f"the counts of {between} differ"
    by = "" if math.isinf(difference.distance) else f", by up to {difference.distance:.1e}"
    return f"{between} differ in {format_count(difference.paragraphs, 'paragraph')}{by}"


def _commands(
    probe: Probe, subject: Subject, size: Finding, memory: Finding, predicted: Sequence[int]
) -> Iterator[Finding]:
    if subject.traits.reports_lengths:
        loads = zip(probe.sizes, probe.loads, predicted, strict=True)
        wrong = (
            f"at batch size {size} the lengths give a load of {expected:,}, and it was {load:,}"
            for size, load, expected in loads
            if load != expected
        )
        what = next(wrong, "")
        right = fine("preflight", "the lengths give the load of every batch size")
        yield missing("preflight", what, "give both in the same unit") if what else right
    else:
        do = "write lengths(paragraphs), with the lengths that the framework pads"
        yield missing("preflight", "no lengths: jobkit takes the load to be the batch size", do)
    if memory.status is Status.MISSING:
        yield missing("find_max, verify", "they predict memory from the load", "as for the load")
    elif subject.device != CUDA:
        yield unknown("find_max, verify", "they need a GPU", _on_gpu())
    else:
        yield replace(memory, name="find_max, verify", said="as load and memory")
    effective = "batch_size is effective" if size.status is Status.OK else size.said
    yield replace(size, name="tune", said=effective)
    if probe.not_json:
        yield missing("apply", probe.not_json, "return numbers, text, lists and mappings")
    elif probe.nan and (subject.nan or "one a paragraph" in probe.writes):
        what = f"column {probe.nan} has NaN or infinity: apply puts such a paragraph into quarantine"
        yield missing("apply", what, "return finite numbers")
    elif probe.rows:
        columns = ", ".join(subject.traits.columns)
        array = "; for one vector a paragraph return a numpy array, for several a list of arrays"
        array *= "one a paragraph" not in probe.writes
        yield fine("apply", f"{probe.writes}, columns {columns}{array * (columns == 'result')}")
    else:
        yield missing("apply", "the workload returned no row", "return the rows of each paragraph")


def as_text(found: Sequence[Finding], subject: Subject, width: int) -> str:
    model = f", model {subject.model.title}" if subject.model else ""
    caveat = f" ({subject.model.caveat})" if subject.model and subject.model.caveat else ""
    lines = [f"{subject.workload}: {subject.text.name}{model}{caveat} on {subject.device}", ""]
    left = max(len(answer.name) for answer in found)
    for answer in found:
        what = f"{answer.said}{answer.hint and f': {answer.hint}'}"
        head = f"  {answer.name:<{left}}  {WORDS[answer.status]:<7}  "
        lines += wrap(what, width, first=head, below=" " * len(head))
    lack, open_ = (
        ", ".join(answer.name for answer in found if answer.status is status)
        for status in (Status.MISSING, Status.UNKNOWN)
    )
    verdict = f"It needs a change: no {lack}." if lack else "Nothing that was checked is wrong."
    return "\n".join([*lines, "", f"{verdict}{f' Not known: {open_}.' if open_ else ''}", ""])


def to_json(found: Sequence[Finding], subject: Subject) -> str:
    data = {
        "workload": subject.workload,
        "text": subject.text.name,
        "model": subject.model and subject.model.name,
        "stand_in": bool(subject.model and subject.model.stand_in),
        "device": subject.device,
        "answers": [
            {"check": one.name, "found": WORDS[one.status], "what": one.said, "do": one.hint} for one in found
        ],
    }
    return as_json(data, indent=2) + "\n"
