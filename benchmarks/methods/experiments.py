"""What is run: parts of the results page, rows of their tables, noise ratios and seeds."""

from collections.abc import Iterator
from dataclasses import dataclass

ROBUST = ("ncr", "crcl", "srem", "recon", "gsl")
DIVIDING = ("ncr", "recon", "gsl")
CEILING = "true pairs only, InfoNCE"


@dataclass(frozen=True)
class Experiment:
    """One row of a table at one noise ratio and seed. options: what the command line gets besides."""

    part: str
    row: str
    noise: float
    seed: int
    options: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.part}--{self.row}--{self.noise}--{self.seed}".replace(" ", "_").replace("/", "-")


def main_table() -> Iterator[Experiment]:
    """Twelve epochs for everybody; InfoNCE needs no warm-up."""
    at_once = ("--schedule.warmup", "0", "--schedule.pieces", "12")
    rows = {
        "plain, triplet": ("--method", "plain", "--plain.objective", "triplet"),
        "plain, InfoNCE": ("--method", "plain", *at_once),
        CEILING: ("--method", "plain", "--true-pairs-only", *at_once),
        "witness prior, InfoNCE": ("--method", "plain", "--prior", "witness", *at_once),
        **{name: ("--method", name) for name in ROBUST},
    }
    for seed, noises in ((123, (0.4, 0.8, 0.0)), (124, (0.4,)), (125, (0.4,)), (123, (0.2, 0.6))):
        for noise in noises:
            for row, options in rows.items():
                if not (noise == 0 and row == CEILING):  # there it is plain InfoNCE
                    yield Experiment("main", row, noise, seed, options)


def reference_table() -> Iterator[Experiment]:
    """The schedules that published implementations were measured with on this data."""
    pieces = ("--schedule.pieces", "4", "4", "4", "12", "--schedule.decay-after", "7")
    triplet = ("--plain.objective", "triplet", "--schedule.warmup", "1", "--schedule.pieces", "11")
    for noise, seed in ((0.4, 123), (0.8, 123), (0.4, 124), (0.4, 125)):
        yield Experiment("reference", "crcl, 24 epochs", noise, seed, ("--method", "crcl", *pieces))
    for seed in (123, 124, 125):
        options = ("--method", "plain", *triplet, "--schedule.decay-after", "6")
        yield Experiment("reference", "plain, triplet, one epoch of warm-up", 0.4, seed, options)


def division_table() -> Iterator[Experiment]:
    for noise in (0.4, 0.8, 0.0):
        for name in DIVIDING:
            options = ("--method", name, "--division", "repairing")
            yield Experiment("division", f"{name}, repairing", noise, 123, options)
        for name in (*DIVIDING, "crcl", "srem"):
            options = ("--method", name, "--prior", "witness")
            yield Experiment("division", f"{name}, witness prior", noise, 123, options)


SWITCHES = {
    "gsl": {
        "L_w only": ("no-galc", "no-foa2", "no-sct"),
        "GALC": ("no-foa2", "no-sct"),
        "GALC + FoA2": ("no-sct",),
        "printed labels": ("label-form raw",),
        "mixture from a fixed start": ("mixture-start fixed",),
        "hardest negatives": ("negatives hardest",),
        "raw image side": ("anchor-images raw",),
        "anchor memory 1024": ("anchor-memory 1024",),
    },
    "crcl": {
        "L_d": ("no-complementary", "no-correction"),
        "L_r": ("no-active", "no-correction"),
        "L_d + L_r": ("no-correction",),
        "L_d + SCC": ("no-complementary",),
    },
    "recon": {
        "no true-positive identification": ("no-true-positives",),
        "no L_IM": ("no-relations",),
        "no lambda": ("no-penalty",),
    },
    "srem": {
        "L_c": ("no-ranking",),
        "L_w + L_c, mean over the clean pairs": ("average clean",),
        "L_w + L_u": ("no-complementary", "bounding"),
        "L_w + L_u + L_c": ("bounding",),
        "L_c*": ("reading uniform",),
        "L_c as printed": ("reading product", "answers scores"),
    },
    "ncr": {
        "no co-divide": ("no-co-divide",),
        "no co-rectify": ("no-co-rectify",),
        "linear margin": ("soft-margin linear",),
        "sine margin": ("soft-margin sine",),
        "published predictions": ("separate-predictions",),
        "hardest negatives": ("negatives hardest",),
        "noisy pairs in the second half": ("noisy-after 0.5",),
    },
}


def ablation_table() -> Iterator[Experiment]:
    for method, rows in SWITCHES.items():
        for row, flags in rows.items():
            words = [word for flag in flags for word in f"--{method}.{flag}".split(" ")]
            yield Experiment("ablation", f"{method}: {row}", 0.4, 123, ("--method", method, *words))


def sgr_table() -> Iterator[Experiment]:
    """Half the images: two networks of cross-attention take their time on a processor."""
    common = ("--matcher", "sgr", "--first-images", "1000")
    for method in ("plain", "ncr", "gsl"):
        objective = ("--plain.objective", "triplet") if method == "plain" else ()
        yield Experiment("sgr", f"sgr, {method}", 0.4, 123, ("--method", method, *common, *objective))


def precision_table() -> Iterator[Experiment]:
    """fp32 against bf16: plain training, short."""
    six = ("--schedule.warmup", "0", "--schedule.pieces", "6", "--schedule.decay-after", "4")
    few = (
        "--plain.objective",
        "triplet",
        "--schedule.warmup",
        "5",
        "--schedule.pieces",
        "0",
        "--first-images",
        "500",
    )
    for matcher, options, seeds in (
        ("vse_infty", six, (123, 124, 125)),
        ("sgr", few, (123,)),
        ("saf", few, (123,)),
    ):
        for seed in seeds:
            for precision in ("fp32", "bf16"):
                common = ("--method", "plain", "--matcher", matcher, "--precision", precision)
                yield Experiment("precision", f"{matcher}, {precision}", 0.0, seed, (*common, *options))


PARTS = {
    "main": main_table,
    "reference": reference_table,
    "division": division_table,
    "ablation": ablation_table,
    "sgr": sgr_table,
    "precision": precision_table,
}
