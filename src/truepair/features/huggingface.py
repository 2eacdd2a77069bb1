"""Regions from any vision model, or the vision half of any CLIP-like model, that transformers can read."""

import importlib
import inspect
import math
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional

from truepair.errors import TruepairError

MOST_ROWS = 7  # grids finer than 7 x 7 are averaged down to it: 49 regions and the pooled vector
BATCH = 32


class HuggingFace:
    """The extractor: region 0 is the model's pooled vector, the others its grid of patches, row by row."""

    whitened = False
    target_side: int | None = None

    def __init__(self, source: str) -> None:
        self.name = f"hf:{source}"
        self.model: Any
        self.model, self.processor = _load(source)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model.to(self.device).eval()

    @torch.inference_mode()
    def describe(self, pictures: Sequence[Image.Image]) -> NDArray[np.float32]:
        """RGB pictures to pictures x (1 + regions) x hidden width."""
        batches = [pictures[start : start + BATCH] for start in range(0, len(pictures), BATCH)]
        return np.concatenate([self._describe_batch(batch) for batch in batches])

    def _describe_batch(self, pictures: Sequence[Image.Image]) -> NDArray[np.float32]:
        pixels = self.processor(images=list(pictures), return_tensors="pt")["pixel_values"]
        outputs = self.model(pixel_values=pixels.to(self.device))
        regions = grid_of(outputs.last_hidden_state)
        pooled = getattr(outputs, "pooler_output", None)
        pooled = regions.mean(dim=1) if pooled is None else pooled.flatten(1)
        if pooled.shape[1] != regions.shape[2]:
            pooled = regions.mean(dim=1)
        both = torch.cat([pooled[:, None], regions], dim=1)
        return both.float().cpu().numpy()

    def settings(self) -> dict[str, Any]:
        """What the features depend on, for the manifest."""
        return {
            "model": self.model.config.model_type,
            "revision": getattr(self.model.config, "_commit_hash", None),
            "transformers": version("transformers"),
            "torch": torch.__version__,
        }


def grid_of(hidden: Tensor) -> Tensor:
    """The last hidden state as images x regions x width, at most MOST_ROWS x MOST_ROWS regions.

    hidden: images x tokens x width, class and register tokens first; or images x width x rows x columns.
    """
    if hidden.ndim == 3:
        rows = math.isqrt(hidden.shape[1])
        # Vision transformers put their class and register tokens, a handful, before a square of patches.
        hidden = hidden[:, hidden.shape[1] - rows * rows :]
        hidden = hidden.transpose(1, 2).reshape(len(hidden), -1, rows, rows)
    size = (min(hidden.shape[2], MOST_ROWS), min(hidden.shape[3], MOST_ROWS))
    return functional.adaptive_avg_pool2d(hidden, size).flatten(2).transpose(1, 2)


def _load(source: str) -> tuple[Any, Any]:
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError:
        raise TruepairError(
            "the extractor hf: needs transformers. Install it: pip install 'truepair[hf]'"
        ) from None
    transformers.utils.logging.disable_progress_bar()
    # The processors on Pillow need no torchvision; they are asked for differently before and after transformers 5.
    on_pillow = {"use_fast": False} if int(version("transformers").split(".")[0]) < 5 else {"backend": "pil"}
    try:
        # Never the code that a model brings along: trust_remote_code stays off.
        model = transformers.AutoModel.from_pretrained(source)
        processor = transformers.AutoImageProcessor.from_pretrained(source, **on_pillow)
    except (OSError, ValueError, ImportError) as error:
        raise TruepairError(
            f"transformers cannot load '{source}': {str(error).splitlines()[0]} Give the name of a model on the hub, "
            "or a folder with config.json, model.safetensors and preprocessor_config.json."
        ) from None
    vision = getattr(model, "vision_model", model)
    if "pixel_values" not in inspect.signature(vision.forward).parameters:
        raise TruepairError(
            f"'{source}' is no vision model ({model.config.model_type}). Name one that takes pictures."
        )
    return vision, processor
