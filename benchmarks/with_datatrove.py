"""``python -m benchmarks.with_datatrove FOLDER TASKS WORKERS``: count words (datatrove).

FOLDER/corpus has the JSONL files, FOLDER/trove gets the rows, one a paragraph: the work of jobkit's
workload ``count`` when it is applied. datatrove gives whole files to its tasks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from datatrove.data import Document
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter

from jobkit.core.paragraphs import split_paragraphs
from jobkit.worker.workloads.function import Count


def words(documents: Iterable[Document], rank: int = 0, world_size: int = 1) -> Iterator[Document]:
    """Yield a document for each paragraph, with the number of its words."""
    del rank, world_size
    workload = Count()
    for document in documents:
        for number, paragraph in enumerate(split_paragraphs(document.text)):
            count = workload.process([paragraph]).tokens
            yield Document(text=str(count), id=f"{document.id}/{number}")


def row(_: object, document: Document) -> dict[str, object]:
    """Return the row of a paragraph."""
    name, _, number = document.id.rpartition("/")
    return {"document": name, "paragraph": int(number), "words": int(document.text)}


def main() -> None:
    """Run the pipeline, or go on with it: tasks that are marked as completed are skipped."""
    folder, tasks, workers = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    LocalPipelineExecutor(
        pipeline=[
            JsonlReader(str(folder / "corpus")),
            words,
            JsonlWriter(
                str(folder / "trove"), output_filename="${rank}.jsonl", compression=None, adapter=row
            ),
        ],
        tasks=tasks,
        workers=workers,
        logging_dir=str(folder / "log"),
    ).run()


if __name__ == "__main__":
    main()
