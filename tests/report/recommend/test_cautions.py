from __future__ import annotations

from dataclasses import replace

from jobkit.core.measurements import Memory
from jobkit.core.records import Outcome
from jobkit.core.units import GIB
from jobkit.fit.lengths import Lengths
from jobkit.fit.loads import Loads
from jobkit.fit.speed import Corpus
from jobkit.report.recommend.recommend import recommend
from jobkit.report.recommend.types import RecommendOptions, RunData
from tests.support.builders import ITEMS
from tests.support.recommendations import material, records

LONG = Loads(Lengths(paragraphs=((9_000,),) * ITEMS))
SHORT = Loads(Lengths(paragraphs=((10,),) * ITEMS))


def beware(of: RunData, corpus: Corpus | None = None) -> str:
    return "; ".join(recommend(of, RecommendOptions(corpus=corpus)).beware)


def test_a_plain_run_has_nothing_but_the_end_of_its_text() -> None:
    assert beware(material(records())) == "the text ends the batch at 881 paragraphs: memory would allow more"


def test_a_context_that_is_unknown_is_told_once() -> None:
    said = "what the context takes of the card is unknown"
    blind = [replace(record, memory=replace(record.memory, context_bytes=None)) for record in records()]
    assert beware(material(blind)).count(said) == 1


def test_single_repeats() -> None:
    assert "each setting ran once" in beware(material(records(repeats=1)))


def test_points_that_are_not_there_and_files_that_could_not_be_read() -> None:
    said = beware(replace(material(records()), to_come=2, failed=1, notes=("spoilt.json: skipped",)))
    assert "2 points are still to come and 1 failed" in said
    assert said.endswith("spoilt.json: skipped")
    assert "1 point is still to come and 0 failed" in beware(replace(material(records()), to_come=1))


def test_several_machines_on_a_cpu() -> None:
    told = [
        replace(
            record,
            point=replace(record.point, device="cpu"),
            gpu=None,
            memory=Memory(maxrss_bytes=GIB + (record.summary.load_max or 0) * 4_000),
            host=f"node{record.point.repeat}",
        )
        for record in records()
        if record.summary
    ]
    assert "ran on 3 machines, whose speeds may differ: node1, node2, node3" in beware(material(told))
    same = [replace(one, host="node1") for one in told]
    assert "machines" not in beware(material(same))


def test_a_line_that_refuses_leaves_what_is_known_of_the_points() -> None:
    told = [replace(record, retries=1) for record in records(sizes=(40, 85, 130))]
    assert "9 of 9 points passed only after the allocator had emptied its cache" in beware(material(told))


def test_a_corpus_of_which_only_the_size_is_known() -> None:
    said = beware(material(records()), Corpus(paragraphs=ITEMS))
    assert "a corpus with longer items than the text that was measured needs more" in said
    said = beware(material(records()), Corpus(name="letters.txt", paragraphs=ITEMS))
    assert "the longest items of letters.txt are not known" in said
    assert "RAM" not in said


def test_a_corpus_whose_items_are_longer() -> None:
    small = [
        replace(record, gpu=replace(record.gpu, total_bytes=4 * GIB)) for record in records() if record.gpu
    ]
    said = beware(material(small), Corpus(name="long.txt", paragraphs=ITEMS, loads=LONG))
    assert "long.txt makes a load of 1,575,000 at this size, more than is safe: at most 31" in said
    assert "short.txt" not in beware(material(small), Corpus(name="short.txt", paragraphs=ITEMS, loads=SHORT))


def test_a_corpus_that_is_held_in_memory() -> None:
    said = beware(material(records()), Corpus(paragraphs=11 * ITEMS))
    assert "RAM was measured over 881 paragraphs, and what is found in 9,691 is held there" in said


def test_points_without_figures_do_not_count() -> None:
    told = [*records(), replace(records()[0], outcome=Outcome.BUG, summary=None)]
    assert "paragraphs: memory would allow more" in beware(material(told))
