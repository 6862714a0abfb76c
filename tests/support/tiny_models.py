"""Tiny models of the real classes, with random weights and tokenizers trained on the sample.

A kind is a model class with its tokenizer and what is unusual about them. Weights are larger than random ones
usually are, so that labels and vectors vary from token to token.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jobkit.core.paragraphs import split_paragraphs
from jobkit.planning.sample import sample_text

SAMPLE = split_paragraphs(sample_text(60))
HARD = [
    *("a", ".", "\u200b", "\u3000", "\x01", "[SEP] Rome [CLS]", "<s> Rome </s> <pad>", "<|endoftext|> Rome"),
    *(
        "東京タワー 北京大学的学生 서울특별시",
        "Zu\u0308rich\u2014Gene\u0300ve\u2019s",
        "one\ttwo\n three",
        "x" * 2_000,
    ),
    *(
        "  leading, trailing  ",
        "\U0001f600 Paris \U0001f600",
        "مرحبا بالعالم",
        "мама мыла раму",
        "\u0130stanbul \u0131i \ufb01ne \xbd",
    ),
    *("antidisestablishmentarianism", "foo@bar.com https://a.b/c?d=e#f $5 10,000", "the same", "the same"),
    *(" ".join(SAMPLE[:25]), f"{' '.join(SAMPLE[25:40])} ", " ".join(SAMPLE)),
]
TEXTS = [*HARD, *SAMPLE[:12]]
LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
WIDTH, MOST = 48, 256
USUAL = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
CAUSAL = {**USUAL, "num_key_value_heads": 2, "head_dim": 12}
T5 = {"d_model": WIDTH, "d_kv": 12, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
BART = {"d_model": WIDTH, "n_layer": 2, "n_head": 4, "d_inner": 64}
GPT = {"n_embd": WIDTH, "n_layer": 2, "n_head": 4, "n_positions": MOST + 2}
FEW = {"hidden_size": WIDTH, "num_hidden_layers": 2, "intermediate_size": 64}
FUNNEL = {"d_model": WIDTH, "n_head": 4, "d_head": 12, "d_inner": 64, "block_sizes": [1, 1]}
GEMMA = {
    "use_bidirectional_attention": True,
    "sliding_window": 16,
    "layer_types": ["sliding_attention", "full_attention"],
}
OLD_SETTINGS = {
    "do_lower_case": True,
    "do_basic_tokenize": True,
    "max_len": MOST,
    "never_split": ["x"],
    "stride": 0,
    "truncation_strategy": "longest_first",
    "special_tokens_map_file": "/x/map.json",
}


@dataclass(frozen=True, kw_only=True)
class Kind:
    model: str  # how the class begins: Bert, of BertForTokenClassification
    tokenizer: str = "Bert"
    size: Mapping[str, Any] = field(default_factory=lambda: USUAL)
    more: Mapping[str, Any] = field(default_factory=dict)  # of the configuration
    most: int | None = MOST  # what the tokenizer names
    positions: int | None = MOST + 2
    tokens: Mapping[str, Any] = field(default_factory=dict)  # attributes of the tokenizer
    train: Mapping[str, Any] = field(default_factory=dict)  # what the tokenizer is made with


def _kind(model: str, tokenizer: str = "", **rest: Any) -> Kind:
    return Kind(model=model, tokenizer=tokenizer or model, **rest)


TAGGERS: Mapping[str, Kind] = {
    "bert": _kind("Bert"),
    "bert-cased": _kind("Bert", train={"do_lower_case": False}),
    "bert-without-maximum": _kind("Bert", most=None, positions=MOST),
    "bert-padding-in-json": _kind("Bert", tokens={"padding_in_json": 128}),
    "bert-max-64": _kind("Bert", most=64, positions=66),
    "bert-max-66": _kind("Bert", most=66, positions=68),
    "bert-split-special": _kind("Bert", tokens={"split_special_tokens": True}),
    "bert-unknown-setting": _kind("Bert", tokens={"drops_words": 0.1}),
    "bert-without-mask": _kind("Bert", tokens={"model_input_names": ["input_ids"]}),
    "bert-old-settings": _kind("Bert", tokens=OLD_SETTINGS),
    "characters": _kind("Bert", "characters"),
    "without-a": _kind("Bert", "chinese"),
    "roberta": _kind("Roberta"),
    "roberta-prefix-space": _kind("Roberta", train={"add_prefix_space": True}),
    "roberta-split-special": _kind("Roberta", tokens={"split_special_tokens": True}),
    "xlm-roberta": _kind("XLMRoberta"),
    "camembert": _kind("Camembert"),
    "deberta": _kind("Deberta", more={"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    "deberta-v3": _kind(
        "DebertaV2",
        most=None,
        more={
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 32,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "position_biased_input": False,
            "type_vocab_size": 0,
        },
    ),
    "modernbert": _kind("ModernBert", "bytes", more={"local_attention": 16, "global_attn_every_n_layers": 2}),
    "modernbert-padding-in-json": _kind("ModernBert", "bytes", tokens={"padding_in_json": 128}),
    "distilbert": _kind("DistilBert", size={"dim": WIDTH, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}),
    "electra": _kind("Electra", more={"embedding_size": 32}),
    "albert": _kind("Albert", more={"embedding_size": 32}),
    "mpnet": _kind("MPNet"),
    "longformer": _kind("Longformer", more={"attention_window": [32, 32]}),
    "bigbird": _kind("BigBird", most=512, positions=514, more={"block_size": 8, "num_random_blocks": 2}),
    "t5": _kind("T5", size=T5, positions=None),
    "t5-without-maximum": _kind("T5", size=T5, positions=None, most=None),
    "umt5": _kind("UMT5", "T5", size=T5, positions=None),
    "mt5": _kind("MT5", "T5", size=T5, positions=None),
    "qwen2": _kind("Qwen2", size=CAUSAL),
    "qwen3": _kind("Qwen3", "Qwen2", size=CAUSAL, tokens={"padding_side": "left"}),
    "qwen3-right": _kind("Qwen3", "Qwen2", size=CAUSAL, tokens={"padding_side": "right"}),
    "llama": _kind("Llama", size=CAUSAL, tokens={"padding_side": "right", "pad_token": "<unk>"}),
    "llama-without-pad": _kind("Llama", size=CAUSAL, tokens={"padding_side": "right", "pad_token": None}),
    "gpt2": _kind("GPT2", size=GPT, positions=None, tokens={"pad_token": "<|endoftext|>"}),
    "gpt2-without-pad": _kind("GPT2", size=GPT, positions=None, tokens={"pad_token": None}),
    "nomic-bert": _kind("NomicBert", "Bert"),
    "eurobert": _kind("EuroBert", "bytes", size=CAUSAL),
    "jina-v3": _kind("JinaEmbeddingsV3", "XLMRoberta"),
    "gte": _kind("Gte", "Bert"),
    "fnet": _kind("FNet", "Albert", size=FEW),
    "funnel": _kind("Funnel", size=FUNNEL, positions=None, more={"num_decoder_layers": 1}),
    "squeezebert": _kind("SqueezeBert", "Bert", more={"embedding_size": WIDTH}),
    "mobilebert": _kind("MobileBert", more={"intra_bottleneck_size": WIDTH, "embedding_size": WIDTH}),
    "xlnet": _kind("XLNet", size=BART, positions=None),
    "rembert": _kind("RemBert", more={"input_embedding_size": 32, "output_embedding_size": 32}),
    "roformer": _kind("RoFormer", "Bert", more={"embedding_size": WIDTH}),
    "privacy-filter": _kind("OpenAIPrivacyFilter", "Qwen2", size=CAUSAL, more={"sliding_window": 16}),
}


def build_tagger(kind: Kind, folder: Path) -> None:
    labels = dict(enumerate(LABELS))
    names = {"id2label": labels, "label2id": {name: number for number, name in labels.items()}}
    save(kind, "ForTokenClassification", folder, names)


def save(kind: Kind, head: str, folder: Path, more: Mapping[str, Any]) -> None:
    import torch
    import transformers

    torch.manual_seed(3)
    tokenizer = _tokenizer(kind)
    config: dict[str, Any] = {**kind.size, **kind.more, **more, "vocab_size": len(tokenizer) + 4}
    if kind.positions:
        config["max_position_embeddings"] = kind.positions
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        if getattr(tokenizer, name) is not None:
            config.setdefault(name, getattr(tokenizer, name))
    network = getattr(transformers, kind.model + head)(getattr(transformers, f"{kind.model}Config")(**config))
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if weight.ndim > 1 and "norm" not in name.lower():
                weight.mul_(4)
    network.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if kind.most is None:
        edit(folder / "tokenizer_config.json", model_max_length=int(1e30))


def _tokenizer(kind: Kind) -> Any:
    made = _trained(kind.tokenizer, tuple(kind.train.items()))
    attributes = dict(kind.tokens)
    if fixed := attributes.pop("padding_in_json", 0):
        made.backend_tokenizer.enable_padding(
            length=fixed, pad_id=made.pad_token_id, pad_token=made.pad_token
        )
        made.backend_tokenizer.enable_truncation(fixed)
    for name, value in attributes.items():
        setattr(made, name, value)
    made.init_kwargs |= attributes
    if kind.most:
        made.model_max_length = kind.most
    return made


def _trained(name: str, how: tuple[tuple[str, Any], ...]) -> Any:
    from copy import deepcopy

    return deepcopy(_trained_once(name, how))


@cache
def _trained_once(name: str, how: tuple[tuple[str, Any], ...]) -> Any:
    import transformers
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    corpus = [*SAMPLE, *HARD[:-3] * 3]
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    if name not in {"bytes", "characters", "chinese"}:
        made = getattr(transformers, f"{name}Tokenizer")(**dict(how))
        return made.train_new_from_iterator([corpus], 900, show_progress=False)
    if name == "bytes":
        whole = Tokenizer(models.BPE())
        whole.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        whole.decoder = decoders.ByteLevel()
        letters = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=900, special_tokens=special, initial_alphabet=letters, show_progress=False
        )
        whole.train_from_iterator(corpus, trainer)
    else:
        letters = sorted({*"".join(corpus if name == "characters" else HARD[8:9])} - {" "})
        vocabulary = {word: number for number, word in enumerate([*special, *letters])}
        if name == "chinese":  # a BPE drops what it does not know
            whole = Tokenizer(models.BPE(vocabulary, []))
            whole.pre_tokenizer = pre_tokenizers.Whitespace()
        else:
            whole = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))  # noqa: S106 - no password
            split = pre_tokenizers.Split(Regex("."), "isolated")
            whole.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), split])
    ends = [("[CLS]", 1), ("[SEP]", 2)]
    whole.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    words = dict(
        zip(("unk_token", "cls_token", "sep_token", "pad_token", "mask_token"), special, strict=True)
    )
    inputs = ["input_ids", "attention_mask"]
    return transformers.PreTrainedTokenizerFast(tokenizer_object=whole, model_input_names=inputs, **words)


def edit(file: Path, **changes: object) -> None:
    data = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps(data | changes))


# -- embedders

BERT = _kind("Bert")
LEFT, RIGHT = {"padding_side": "left"}, {"padding_side": "right"}
QWEN = _kind("Qwen3", "Qwen2", size=CAUSAL, positions=512, tokens=LEFT)
CHAT = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
Modules = Callable[[str], Sequence[Any]]
Build = Callable[[Path], None]


def _modules(*after: str, **settings: Any) -> Modules:
    """Return modules after a Transformer: names of poolings, and of modules of one argument, the width."""

    def made(backbone: str) -> Sequence[Any]:
        import torch
        from sentence_transformers import models

        found: list[Any] = [models.Transformer(backbone, **settings)]
        for name in after:
            if name == "Dense":
                found.append(models.Dense(WIDTH, 32, activation_function=torch.nn.Tanh()))
            elif name == "WeightedLayerPooling":
                found.append(models.WeightedLayerPooling(WIDTH, num_hidden_layers=2, layer_start=1))
            elif name == "Normalize":
                found.append(models.Normalize())
            elif name == "LayerNorm":
                found.append(models.LayerNorm(WIDTH))
            elif name == "Dropout":
                found.append(models.Dropout(0.1))
            else:
                found.append(models.Pooling(WIDTH, tuple(name.split("+"))))
        return found

    return made


def _embedder(
    kind: Kind = BERT,
    modules: Modules | None = None,
    change: Build | None = None,
    head: str = "Model",
    **rest: Any,
) -> Build:
    def build(folder: Path) -> None:
        from sentence_transformers import SentenceTransformer

        backbone = folder.with_name(f".{folder.name}")
        save(kind, head, backbone, {})
        parts = (modules or _modules("mean"))(str(backbone))
        SentenceTransformer(modules=list(parts), device="cpu", **rest).save(
            str(folder), create_model_card=False
        )
        shutil.rmtree(backbone)
        if change:
            change(folder)

    return build


def _changed(file: str, **changes: object) -> Build:
    return lambda folder: edit(folder / file, **changes)


def _only(pattern: str) -> Build:
    """Return what leaves a folder weights of another program alone."""

    def change(folder: Path) -> None:
        (folder / pattern).parent.mkdir(exist_ok=True)
        (folder / "model.safetensors").rename(folder / pattern)

    return change


def _adapter(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    (folder / "config.json").unlink()
    edit(folder / "adapter_config.json", base_model_name_or_path="someone/base", peft_type="LORA")


def _own_code(folder: Path) -> None:
    code = "from sentence_transformers.models import Transformer\n\n\nclass Mine(Transformer):\n    pass\n"
    (folder / "mine.py").write_text(code)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["type"] = "mine.Mine"
    (folder / "modules.json").write_text(json.dumps(modules))


def _static(*after: str) -> Build:
    def build(folder: Path) -> None:
        import torch
        from sentence_transformers import SentenceTransformer, models

        torch.manual_seed(4)
        first = models.StaticEmbedding(_tokenizer(BERT).backend_tokenizer, embedding_dim=32)
        modules = [first, *(models.Normalize() for _ in after)]
        SentenceTransformer(modules=modules, device="cpu").save(str(folder), create_model_card=False)

    return build


def _other(name: str) -> Build:
    """Return what saves a folder that begins with another module than a Transformer."""

    def build(folder: Path) -> None:
        import torch
        from sentence_transformers import SentenceTransformer, models

        words = sorted({*" ".join(SAMPLE[:9]).split()})
        static = models.StaticEmbedding(_tokenizer(BERT).backend_tokenizer, embedding_dim=32)
        if name == "BoW":
            modules: list[Any] = [models.BoW(vocab=words)]
        elif name == "WordEmbeddings":
            numbers = torch.randn(len(words), 32)
            modules = [models.WordEmbeddings(models.tokenizer.WhitespaceTokenizer(words), numbers)]
            modules.append(models.Pooling(32, "mean"))
        else:
            modules = [models.Router({"query": [static], "document": [static]}, default_route="document")]
        SentenceTransformer(modules=modules, device="cpu").save(str(folder), create_model_card=False)

    return build


def _no_embedder(name: str) -> Build:
    """Return what saves a model of another purpose, or a model of transformers alone."""

    def build(folder: Path) -> None:
        import sentence_transformers
        from sentence_transformers import models
        from sentence_transformers.sparse_encoder.models import SpladePooling

        head = {"CrossEncoder": "ForSequenceClassification", "SparseEncoder": "ForMaskedLM"}.get(
            name, "Model"
        )
        backbone = folder.with_name(f".{folder.name}") if name != "plain" else folder
        save(BERT, head, backbone, {"num_labels": 1} if name == "CrossEncoder" else {})
        if name == "plain":
            return
        whole: Any = str(backbone)
        if name == "SparseEncoder":
            first = models.Transformer(str(backbone), transformer_task="fill-mask")
            whole = sentence_transformers.SparseEncoder(modules=[first, SpladePooling("max")], device="cpu")
        else:
            whole = getattr(sentence_transformers, name)(str(backbone), device="cpu")
        whole.save_pretrained(str(folder))
        shutil.rmtree(backbone)

    return build


PROMPTS = {"query": "query: ", "document": "passage: "}
EMBEDDERS: Mapping[str, Build] = {
    **{
        f"bert-{name}": _embedder(modules=_modules(name))
        for name in ("mean", "cls", "max", "weightedmean", "lasttoken", "mean_sqrt_len_tokens", "mean+max")
    },
    "dense-normalize": _embedder(modules=_modules("mean", "Dense", "Normalize")),
    "layer-norm": _embedder(modules=_modules("mean", "LayerNorm")),
    "dropout": _embedder(modules=_modules("mean", "Dropout")),
    "layers-weighted": _embedder(
        _kind("Bert", more={"output_hidden_states": True}), _modules("WeightedLayerPooling", "mean")
    ),
    "prompts": _embedder(prompts=PROMPTS),
    "prompt-default": _embedder(prompts=PROMPTS, default_prompt_name="document"),
    "prompt-empty": _embedder(prompts={**PROMPTS, "document": ""}, default_prompt_name="document"),
    "truncate-16": _embedder(truncate_dim=16),
    "truncate-nothing": _embedder(truncate_dim=WIDTH),
    "max-32": _embedder(modules=_modules("mean", max_seq_length=32)),
    "max-unset": _embedder(_kind("Bert", most=None, positions=512)),
    "max-above-positions": _embedder(change=_changed("tokenizer_config.json", model_max_length=400)),
    "max-of-400-refused": _embedder(change=_changed("sentence_bert_config.json", max_seq_length=400)),
    "lower-case": _embedder(
        _kind("Bert", train={"do_lower_case": False}),
        change=_changed("sentence_bert_config.json", do_lower_case=True),
    ),
    "processing-max-40": _embedder(modules=_modules("mean", processing_kwargs={"text": {"max_length": 40}})),
    "processing-no-special": _embedder(
        modules=_modules("mean", processing_kwargs={"text": {"add_special_tokens": False}})
    ),
    "processing-padding": _embedder(
        modules=_modules("mean", processing_kwargs={"text": {"padding": "max_length"}})
    ),
    "unknown-setting": _embedder(change=_changed("config_sentence_transformers.json", whitens=True)),
    "split-special": _embedder(_kind("Roberta", tokens={"split_special_tokens": True})),
    "padding-in-json": _embedder(_kind("Bert", tokens={"padding_in_json": 64})),
    "truncation-left": _embedder(_kind("Bert", tokens={"truncation_side": "left"})),
    "qwen3-left": _embedder(QWEN, _modules("lasttoken", "Normalize"), prompts={"query": "Find: "}),
    "qwen3-right": _embedder(
        _kind("Qwen3", "Qwen2", size=CAUSAL, positions=512, tokens=RIGHT), _modules("lasttoken", "Normalize")
    ),
    "qwen3-chat": _embedder(
        _kind("Qwen3", "Qwen2", size=CAUSAL, positions=512, tokens={**RIGHT, "chat_template": CHAT}),
        _modules("lasttoken"),
    ),
    "qwen3-without-pad": _embedder(
        _kind("Qwen3", "Qwen2", size=CAUSAL, positions=512, tokens={**LEFT, "pad_token": None}),
        _modules("lasttoken", "Normalize"),
    ),
    "qwen3-plain": lambda folder: save(QWEN, "Model", folder, {}),
    "roberta": _embedder(_kind("Roberta")),
    "roberta-positions": _embedder(_kind("Roberta", most=None)),
    "xlm-roberta": _embedder(_kind("XLMRoberta"), _modules("mean", "Normalize")),
    "mpnet": _embedder(_kind("MPNet")),
    "modernbert": _embedder(_kind("ModernBert", "bytes", more={"local_attention": 16}), _modules("cls")),
    "nomic-bert": _embedder(_kind("NomicBert", "Bert"), _modules("mean", "Normalize")),
    "gemma3": _embedder(
        _kind("Gemma3Text", "Gemma", size=CAUSAL, more=GEMMA),
        _modules("mean", "Dense", "Normalize"),
        prompts={"query": "task: search | query: ", "document": "title: none | text: "},
    ),
    "t5": _embedder(
        _kind("T5", size=T5, positions=None), _modules("mean", "Dense", "Normalize"), head="EncoderModel"
    ),
    "fnet": _embedder(_kind("FNet", "Albert", size=FEW)),
    "characters": _embedder(_kind("Bert", "characters")),
    "static": _static(),
    "static-normalize": _static("Normalize"),
    "bag-of-words": _other("BoW"),
    "glove": _other("WordEmbeddings"),
    "router": _other("Router"),
    "cross-encoder": _no_embedder("CrossEncoder"),
    "splade": _no_embedder("SparseEncoder"),
    "colbert": _no_embedder("MultiVectorEncoder"),
    "plain": _no_embedder("plain"),
    "tagger": lambda folder: build_tagger(BERT, folder),
    "onnx-alone": _embedder(change=_only("onnx/model.onnx")),
    "openvino-alone": _embedder(change=_only("openvino/openvino_model.xml")),
    "adapter": _embedder(change=_adapter),
    "own-code": _embedder(change=_own_code),
    "dense-own-activation": _embedder(
        modules=_modules("mean", "Dense"),
        change=_changed("2_Dense/config.json", activation_function="mine.Swish"),
    ),
    "without-vocabulary": _embedder(change=lambda folder: (folder / "tokenizer.json").unlink()),
}
