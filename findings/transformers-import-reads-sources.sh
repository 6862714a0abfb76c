#!/usr/bin/env bash
# `import transformers` reads the source of each model, of all architectures, before one is asked for (5.23.0).
#
# One expects a lazy package: its `__init__` puts a lazy module in its place, which "imports" nothing until a name is used.
# What happens: to know the names, `import transformers` lists transformers/models and reads the .py files of all models
#   as text, 1,669 of them. The first name taken from transformers.models (any AutoModel, AutoTokenizer, ...) reads all
#   a second time: 3,349 opened sources for one tokenizer. Nothing is kept for the next process but the page cache.
# What it means: on a shared file system the first import on a node waits for thousands of small files; fork tries from
#   one process that has imported it, and do not import it to count tokens (tokenizers alone opens none).
#
# Usage: bash transformers-import-reads-sources.sh   (Python 3.11 with venv; a minute)
# It installs the pinned packages with pip into a temporary folder, counts what Python opens, by an audit hook, and
# removes the folder. Exit status: 0 it is as described, 1 it differs, 2 it could not be asked.
set -euo pipefail; umask 022
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 2' ERR INT TERM
cd "$dir"; python3 -m venv venv
venv/bin/python -m pip install -q --disable-pip-version-check transformers==5.23.0 tokenizers==0.23.3
cat >count.py <<'PY'
import sys
from collections import Counter

opened = Counter()


def hook(event, given):
    if event == "open" and isinstance(given[0], str) and "/transformers/models/" in given[0]:
        opened[given[0]] += given[0].endswith(".py")


sys.addaudithook(hook)
import tokenizers

sources = +opened
import transformers

first = +opened
from transformers import AutoTokenizer

second = +opened
every = [file for file in second if file.endswith(".py")]
print(f"tokenizers: {len(sources)} sources of models opened")
print(f"import transformers: {len(first)} files, {first.total()} times")
print(f"and AutoTokenizer: {len(every)} files, {second.total()} times")
sys.exit(not (not sources and len(first) > 1_000 and second.total() > 1.9 * len(every)))
PY
trap - ERR
venv/bin/python count.py
