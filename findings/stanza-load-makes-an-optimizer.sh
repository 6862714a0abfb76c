#!/usr/bin/env bash
# A tokenizer of Stanza that is loaded to be used makes an Adam, and the first optimizer imports torch._dynamo (stanza 1.15.0).
#
# One expects that a model loaded from its file for prediction gets weights alone; its optimizer is the business of training.
# What happens: stanza's tokenization Trainer, which the pipeline loads too, makes an optimizer in each case. With torch
#   2.13.0 the first optimizer of a process imports torch._dynamo and sympy: 800 modules, a third of all that is then
#   imported, seconds on a shared file system. No step is ever made.
# What it means: where each short job loads a pipeline, put a function that returns None in the place of
#   stanza.models.common.utils.get_optimizer while it is loaded: predictions are the same, start and memory are less.
#
# Usage: bash stanza-load-makes-an-optimizer.sh   (Python 3.11 with venv; two minutes)
# It installs the pinned packages with pip into a temporary folder, saves a small tokenizer of random weights there, loads it
# in new processes, and removes the folder. Exit status: 0 it is as described, 1 it differs, 2 it could not be asked.
set -euo pipefail; umask 022
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 2' ERR INT TERM
cd "$dir"; python3 -m venv venv
venv/bin/python -m pip install -q --disable-pip-version-check torch==2.13.0 stanza==1.15.0 numpy==2.4.6
cat >save.py <<'PY'
from stanza.models.tokenization.trainer import Trainer
from stanza.models.tokenization.vocab import Vocab

vocab = Vocab([[(letter, 0) for letter in "abcdefghijklmnopqrstuvwxyz. "]], "en")
args = {"emb_dim": 8, "hidden_dim": 8, "feat_dim": 1, "rnn_layers": 1, "dropout": 0.0, "feat_dropout": 0.0}
args |= {"tok_noise": 0.0, "conv_res": None, "hierarchical": False, "use_mwt": False, "hier_invtemp": 0.5}
args |= {"vocab_size": len(vocab), "lang": "en", "lr0": 0.002, "weight_decay": 0.0, "feat_funcs": ["space_before"]}
Trainer(args=args, vocab=vocab, device="cpu").save("tokenizer.pt")
PY
cat >load.py <<'PY'
import sys

from stanza.models.common import utils
from stanza.models.tokenization.trainer import Trainer

if sys.argv[1] == "without":
    utils.get_optimizer = lambda *_, **_options: None
before = set(sys.modules)
trainer = Trainer(model_file="tokenizer.pt", device="cpu")
trainer.model.eval()
more = set(sys.modules) - before
print(len(more), len(sys.modules), "torch._dynamo" in more, type(trainer.optimizer).__name__)
PY
venv/bin/python save.py
loaded=$(venv/bin/python load.py with); without=$(venv/bin/python load.py without)
echo "modules that loading imports, modules in all, whether torch._dynamo is one, the optimizer:"
echo "as it is:              $loaded"
echo "without an optimizer:  $without"
trap - ERR
read -r more all dynamo kind <<<"$loaded"
read -r few _ no none <<<"$without"
[[ $dynamo == True && $no == False && $none == NoneType && $kind != NoneType ]] && ((more > 500 && few < 50 && 4 * more > all))
