"""What a run was asked to do, as it is stored beside its results."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from truepair.methods.base import Method
from truepair.methods.registry import find_method
from truepair.training.schedule import Schedule

DivisionName = Literal["own", "repairing"]
PriorName = Literal["none", "witness"]
Precision = Literal["fp32", "bf16"]


@dataclass(frozen=True)
class NoiseConfig:
    """Which synthetic noise to put on the training pairs; none by default."""

    source: str | float = 0.0
    """A ratio of pairs to mismatch, or an index file in one of the published formats."""
    protocol: Literal["caption", "image"] = "caption"
    """Whether a ratio permutes single captions (NCR) or images with all their captions (DECL, RCL)."""
    seed: int | None = None
    """None: the run's seed."""


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides a run's numbers, except the data itself."""

    data: str
    method: Method
    matcher: str = "vse_infty"
    matcher_options: Mapping[str, Any] = field(default_factory=dict)
    schedule: Schedule = field(default_factory=Schedule)
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    seed: int = 0
    division: DivisionName = "own"
    prior: PriorName = "none"
    alter: float = 0.2
    """Share of words and regions that are hidden while training (VSE-infinity, CRCL); 0 for none (NCR)."""
    true_pairs_only: bool = False
    """Leave the pairs out that the noise is known to have mismatched: the ceiling for a comparison."""
    first_images: int | None = None
    """Train on the pairs of the first so many images only."""
    precision: Precision = "fp32"
    save_every: int = 0
    """Also save after every so many steps; the end of an epoch is always saved."""
    tensorboard: bool = False
    """Also write the metrics for TensorBoard, into the run's folder."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; the method goes by its name and its fields."""
        return asdict(self) | {"method": {"name": self.method.name, **asdict(self.method)}}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "TrainConfig":
        """The config that `to_json` wrote."""
        method = dict(values["method"])
        schedule = dict(values["schedule"])
        return cls(
            **{
                **values,
                "method": find_method(method.pop("name"))(**method),
                "schedule": Schedule(**{**schedule, "pieces": tuple(schedule["pieces"])}),
                "noise": NoiseConfig(**values["noise"]),
            }
        )
