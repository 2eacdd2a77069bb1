"""Matchers from published weights: sizes are read off the shapes, names are translated, the rest is refused."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from truepair.errors import TruepairError
from truepair.interop.checkpoints import PublishedCheckpoint
from truepair.matchers.base import Matcher
from truepair.matchers.registry import MATCHERS, find_matcher

Weights = Mapping[str, Tensor]

# Published prefix -> ours. The published codes call the same GRU cap_rnn (SGRAF, NCR) or rnn (SCAN, VSE-infinity).
ENCODERS = {
    "img_enc.fc.": "image_encoder.fc.",
    "txt_enc.embed.": "text_encoder.embed.",
    "txt_enc.cap_rnn.": "text_encoder.rnn.",
    "txt_enc.rnn.": "text_encoder.rnn.",
}
VSE_INFTY = ENCODERS | {
    "img_enc.mlp.layers.0.": "image_encoder.hidden.",
    "img_enc.mlp.bns.0.": "image_encoder.norm.",
    "img_enc.mlp.layers.1.": "image_encoder.out.",
    "img_enc.gpool.": "image_pooling.",
    "txt_enc.gpool.": "text_pooling.",
}
ALIGNMENT = ENCODERS | {
    "sim_enc.v_global_w.embedding_local.": "image_pooling.local.",
    "sim_enc.v_global_w.embedding_global.": "image_pooling.mean.",
    "sim_enc.v_global_w.embedding_common.0.": "image_pooling.score.",
    "sim_enc.t_global_w.embedding_local.": "text_pooling.local.",
    "sim_enc.t_global_w.embedding_global.": "text_pooling.mean.",
    "sim_enc.t_global_w.embedding_common.0.": "text_pooling.score.",
    "sim_enc.sim_tranloc_w.": "word_alignment.",
    "sim_enc.sim_tranglo_w.": "global_alignment.",
    "sim_enc.sim_eval_w.": "evaluation.",
}
SAF_ONLY = {
    "sim_enc.SAF_module.attn_sim_w.": "filtration.attention.",
    "sim_enc.SAF_module.bn.": "filtration.norm.",
}
# Parts of one graph step; the number of the step stands before them.
STEP = {"graph_query_w.": "query.", "graph_key_w.": "key.", "sim_graph_w.": "out."}

# Published entries that change no similarity: a batch norm nobody calls, and biases that a softmax removes.
WITHOUT_EFFECT = (
    "img_enc.mlp.bns.1.",
    "sim_enc.v_global_w.embedding_common.0.bias",
    "sim_enc.t_global_w.embedding_common.0.bias",
)
KEY_BIAS = ".graph_key_w.bias"

SPELLINGS = {"vseinfinity": "vse_infty", "vseinfty": "vse_infty", "vse∞": "vse_infty"}


def matcher_from_published(
    kind: str,
    weights: Weights | PublishedCheckpoint | Sequence[Weights],
    *,
    network: int = 0,
    **options: Any,
) -> Matcher:
    """A matcher with published weights, in evaluation mode.

    kind: a name of the registry in any usual spelling ("SGR", "vse-infinity"). weights: a flat state dict under the
    published names, a loaded checkpoint (network: which of its networks), or for "sgraf" the state dicts of an SGR
    and an SAF. options: fields of the matcher's config that weights do not show, such as SCAN's direction.
    """
    name = _registry_name(kind)
    if name == "sgraf":
        return _ensemble(weights, options)
    if isinstance(weights, PublishedCheckpoint):
        options = _recorded_options(name, weights) | options
        weights = _network(weights, network)
    if not isinstance(weights, Mapping):
        raise TruepairError(
            f"The weights of '{name}' come as a {type(weights).__name__}; one state dict is needed."
        )
    flat = {key.removeprefix("module."): torch.as_tensor(value) for key, value in weights.items()}
    entry = find_matcher(name)
    config = _sizes(name, flat) | options
    known = {field.name for field in fields(entry.config)}
    if unknown := sorted(set(config) - known):
        raise TruepairError(
            f"The matcher '{name}' has no option {', '.join(unknown)}. It has: {sorted(known)}."
        )
    matcher = entry.matcher(entry.config(**config))
    _load(matcher, name, flat)
    return matcher.eval()


def _registry_name(kind: str) -> str:
    plain = kind.lower().replace("-", "").replace("_", "").replace(" ", "")
    name = SPELLINGS.get(plain, plain)
    if name not in MATCHERS or name == "projection":
        published = ", ".join(known for known in MATCHERS if known != "projection")
        raise TruepairError(f"There are no published weights of a kind '{kind}'. There are: {published}.")
    return name


def _network(checkpoint: PublishedCheckpoint, network: int) -> Weights:
    if not 0 <= network < len(checkpoint.networks):
        raise TruepairError(
            f"{checkpoint.source} holds {len(checkpoint.networks)} network(s), counted from 0; "
            f"there is no network {network}."
        )
    return checkpoint.networks[network]


def _ensemble(weights: Any, options: dict[str, Any]) -> Matcher:
    """An SGRAF from the weights of its two halves, in either order."""
    parts = weights.networks if isinstance(weights, PublishedCheckpoint) else weights
    if isinstance(parts, Mapping) or len(parts) != 2:
        raise TruepairError(
            "SGRAF is the mean of an SGR and an SAF: give the state dicts of both, as a pair."
        )
    # The SGR half is the one with graph steps.
    first, second = sorted(parts, key=lambda part: not any("SGR_module" in key for key in part))
    sgr, saf = (
        matcher_from_published(kind, part, **options) for kind, part in (("sgr", first), ("saf", second))
    )
    shared = {field.name: getattr(saf.config, field.name) for field in fields(find_matcher("saf").config)}
    differing = [key for key, value in shared.items() if getattr(sgr.config, key) != value]
    if differing:
        raise TruepairError(
            f"The two halves of SGRAF differ in {', '.join(differing)}; they must have equal sizes."
        )
    entry = find_matcher("sgraf")
    matcher = entry.matcher(entry.config(**vars(sgr.config)))
    both = {f"sgr.{key}": value for key, value in sgr.state_dict().items()}
    both |= {f"saf.{key}": value for key, value in saf.state_dict().items()}
    matcher.load_state_dict(both)
    return matcher.eval()


def _sizes(name: str, weights: Weights) -> dict[str, Any]:
    """The sizes that the shapes show."""

    def shape(key: str, dimensions: int = 2) -> tuple[int, ...]:
        if key not in weights:
            raise TruepairError(f"The weights of '{name}' lack '{key}'. {_HINT}")
        sizes = tuple(weights[key].shape)
        if len(sizes) != dimensions or 0 in sizes:
            raise TruepairError(f"'{key}' of '{name}' has the shape {sizes}. {_HINT}")
        return sizes

    embedding, image_width = shape("img_enc.fc.weight")
    vocabulary_size, word_width = shape("txt_enc.embed.weight")
    rnn = "txt_enc.cap_rnn." if any(key.startswith("txt_enc.cap_rnn.") for key in weights) else "txt_enc.rnn."
    sizes: dict[str, Any] = {
        "image_width": image_width,
        "vocabulary_size": vocabulary_size,
        "word_width": word_width,
        "embedding": embedding,
        "layers": sum(f"{rnn}weight_ih_l{i}" in weights for i in range(8)),
    }
    if name == "vse_infty":
        hidden, position = shape("img_enc.gpool.gru.weight_ih_l0")
        return sizes | {
            "image_hidden": shape("img_enc.mlp.layers.0.weight")[0],
            "position_width": position,
            "pooling_hidden": hidden // 3,
            "padding_in_statistics": True,
        }
    sizes["bidirectional"] = f"{rnn}weight_ih_l0_reverse" in weights
    if name == "scan":
        return sizes
    sizes |= {
        "similarity": shape("sim_enc.sim_tranglo_w.weight")[0],
        "region_norm": "slot",
        "region_slots": shape("sim_enc.v_global_w.embedding_local.1.weight", 1)[0],
    }
    if name == "sgr":
        shape("sim_enc.SGR_module.0.sim_graph_w.weight")
        sizes["steps"] = _graph_steps(weights)
    return sizes


_HINT = (
    "Is it a checkpoint of this kind, with the names of the published code (img_enc., txt_enc., sim_enc.)?"
)


def _load(matcher: Matcher, name: str, weights: Weights) -> None:
    """Copy the weights under our names; whatever is left over or missing is an error."""
    table, ours = _names(name, weights), matcher.state_dict()
    translated, unknown = {}, []
    for key, value in weights.items():
        if key.startswith(WITHOUT_EFFECT) or key.endswith(KEY_BIAS):
            continue
        target = next((new + key.removeprefix(old) for old, new in table.items() if key.startswith(old)), "")
        if target not in ours:
            unknown.append(key)
        elif ours[target].shape != value.shape:
            shapes = f"{tuple(value.shape)}, but the other sizes ask for {tuple(ours[target].shape)}"
            raise TruepairError(f"'{key}' of '{name}' has the shape {shapes}.")
        else:
            translated[target] = value
    missing = [
        next(old + key.removeprefix(new) for old, new in table.items() if key.startswith(new))
        for key in sorted(set(ours) - set(translated))
    ]
    if unknown:
        raise TruepairError(
            f"The weights of '{name}' have entries it does not know: {_some(unknown)}. {_HINT}"
        )
    if missing:
        raise TruepairError(f"The weights of '{name}' lack {_some(missing)}. {_HINT}")
    matcher.load_state_dict(translated)


def _names(name: str, weights: Weights) -> dict[str, str]:
    """Published prefix -> ours, for this kind."""
    if name == "vse_infty":
        return VSE_INFTY
    if name == "scan":
        return ENCODERS
    if name == "saf":
        return ALIGNMENT | SAF_ONLY
    steps = range(_graph_steps(weights))
    return ALIGNMENT | {
        f"sim_enc.SGR_module.{i}.{old}": f"steps.{i}.{new}" for i in steps for old, new in STEP.items()
    }


def _graph_steps(weights: Weights) -> int:
    return len({key.split(".")[2] for key in weights if key.startswith("sim_enc.SGR_module.")})


def _some(names: Sequence[str], most: int = 5) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def _recorded_options(name: str, checkpoint: PublishedCheckpoint) -> dict[str, Any]:
    """What the training options say about the similarity; options no matcher here follows are refused."""
    recorded = checkpoint.options
    for switch in ("no_imgnorm", "no_txtnorm"):
        if recorded.get(switch):
            raise TruepairError(f"{checkpoint.source} was trained with {switch}, which no matcher here does.")
    if name != "scan":
        return {}
    if recorded.get("raw_feature_norm", "clipped_l2norm") != "clipped_l2norm":
        raise TruepairError(
            f"{checkpoint.source} was trained with raw_feature_norm={recorded['raw_feature_norm']}; "
            "only clipped_l2norm is known here."
        )
    if recorded.get("precomp_enc_type", "basic") != "basic":
        raise TruepairError(
            f"{checkpoint.source} has an image encoder of type {recorded['precomp_enc_type']}."
        )
    aggregation = {"LogSumExp": "lse", "Mean": "mean", "Max": "max", "Sum": "sum"}
    found = {
        "direction": recorded.get("cross_attn"),
        "aggregation": aggregation.get(str(recorded.get("agg_func"))),
        "smooth": recorded.get("lambda_softmax"),
        "lse_weight": recorded.get("lambda_lse"),
    }
    return {key: value for key, value in found.items() if value is not None}
