"""truepair review: people decide about the suspects of an audit, one key each."""

import getpass
import sys
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import polars as pl
import tyro
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from truepair.audit.export import write_data
from truepair.audit.folder import DECISIONS, Audit, chosen_pairs, read_audit, reload_pairs
from truepair.audit.gallery import others_first, strongest_first
from truepair.audit.report import write_pair_page
from truepair.audit.review import Decision, Order, Verdict, append_decision, now, read_decisions, status
from truepair.cli.output import emit, table
from truepair.errors import TruepairError

Action = Literal["keep", "drop", "rematch", "skip", "back", "open", "quit"]
_KEYS: dict[str, tuple[Action, str]] = {
    "k": ("keep", "a true pair"),
    "d": ("drop", "wrong"),
    "r": ("rematch", "wrong, the proposed picture is right"),
    "s": ("skip", "later"),
    "b": ("back", "to the pair before"),
    "o": ("open", "a page in the browser that shows the pair and follows the review"),
    "q": ("quit", "all decisions are kept"),
}
PAGE = "review.html"
_VERDICTS: dict[Action, Verdict] = {"keep": "keep", "drop": "drop", "rematch": "rematch"}


def review(
    audit: Annotated[Path, tyro.conf.Positional],
    *,
    order: Literal["strongest", "random"] = "strongest",
    seed: int = 0,
    reviewer: str | None = None,
    unflagged: bool = False,
    status: bool = False,
    export: Path | None = None,
    json: bool = False,
) -> None:
    """Decide about the suspects of an audit with single keys; every decision is on the disk at once.

    Args:
        audit: The folder that `truepair audit` wrote.
        order: strongest suspects first; or drawn at random, which tells how precise the audit is on all it flagged.
        seed: Seed of the random order.
        reviewer: Your name beside your decisions; by default the one you are logged in with.
        unflagged: Go on with pairs that were not flagged, the most suspect first: what the audit was not sure about.
        status: Print how far the review is and how precise the audit has been, and stop.
        export: Write the data with all decisions applied to this folder, and stop.
        json: Print the status as JSON.
    """
    found = read_audit(audit)
    path = audit / DECISIONS
    if export is not None:
        pairs = reload_pairs(found)
        chosen = chosen_pairs(
            pairs, found.suspects, read_decisions(path), rematch=bool(found.summary["apply_rematch"])
        )
        write_data(export, pairs, chosen)
        left_out = len(pairs) - len(chosen)
        emit({"out": str(export), "pairs": len(chosen), "left_out": left_out}, as_json=json)
        return
    if not (status or json):
        asking = Console(highlight=False, soft_wrap=True)
        with _keys() as keys:
            Loop(found, path, order, seed, reviewer or _login(), keys, asking, unflagged).run()
    _emit_status(found, path, json)


@dataclass
class Loop:
    """Shows one suspect after the other and stores what is decided."""

    audit: Audit
    path: Path
    order: Order
    seed: int
    reviewer: str
    keys: Iterator[str]
    console: Console
    unflagged: bool = False
    seen: list[int] = field(default_factory=list)
    """Places of the pairs shown before the present one."""

    def run(self) -> None:
        """Until all are decided, or somebody quits."""
        suspects = strongest_first(self.audit.suspects)
        if self.order == "random":
            suspects = suspects.sample(fraction=1.0, shuffle=True, seed=self.seed)
        others = others_first(self.audit.suspects, float(self.audit.summary["estimated_share"]))
        if self.unflagged:
            suspects = pl.concat([suspects, others])
        if not len(suspects):
            hint = (
                f" --unflagged shows {len(others):,} others, the most suspect first." if len(others) else ""
            )
            self.console.print(f"The audit flagged no pair: there is nothing to review.{hint}")
            return
        decided = read_decisions(self.path)
        open_places = [p for p, name in enumerate(suspects["pair_id"]) if self._is_open(decided.get(name))]
        place = open_places[0] if open_places else None
        if place is None:
            self.console.print(
                "All flagged pairs are decided. Remove a line of decisions.jsonl to decide again, or go on with "
                "--unflagged."
            )
        else:
            self.console.print(f"The pictures: {self.page.resolve().as_uri()} follows the review.\n")
        while place is not None:
            row = suspects.row(place, named=True)
            write_pair_page(self.page, row, place + 1)
            self.console.print(_shown(row, place, len(suspects), decided.get(row["pair_id"])))
            action = self._asked(row)
            if action == "quit":
                return
            if action == "back":
                place = self.seen.pop() if self.seen else self._last_decided(suspects, decided, place)
                continue
            if action in _VERDICTS:
                decided[row["pair_id"]] = self._store(row, _VERDICTS[action])
            self.seen.append(place)
            names = suspects["pair_id"]
            place = next((p for p in open_places if p > place and self._is_open(decided.get(names[p]))), None)
        if open_places:
            self.console.print("That was the last one.")

    @property
    def page(self) -> Path:
        """The page in which a browser shows the pair."""
        return self.path.with_name(PAGE)

    def _is_open(self, decision: Decision | None) -> bool:
        """Drawn at random, pairs that came up as the strongest come up again: without them the draw were not fair."""
        return decision is None or (self.order == "random" and decision.order != "random")

    def _asked(self, row: dict[str, Any]) -> Action:
        """The action of the next key that means something."""
        while True:
            self.console.print(Text("  ".join(f"[{key}] {name}" for key, (name, _) in _KEYS.items()), "dim"))
            key = next(self.keys, "q")
            action = _KEYS[key][0] if key in _KEYS else None
            if action == "open":
                webbrowser.open(self.page.resolve().as_uri())
            elif action == "rematch" and row["other_image_id"] is None:
                self.console.print("There is no proposal to rematch it with.")
            elif action:
                return action
            else:
                for name, meaning in _KEYS.values():
                    self.console.print(f"{name[0]}  {name}: {meaning}", markup=False)

    def _store(self, row: dict[str, Any], verdict: Verdict) -> Decision:
        image = row["other_image_id"] if verdict == "rematch" else None
        decision = Decision(row["pair_id"], verdict, now(), self.reviewer, self.order, image)
        append_decision(self.path, decision)
        self.console.print(Text(f"{verdict}: {_printable(row['pair_id'])}", "bold"))
        return decision

    def _last_decided(self, suspects: pl.DataFrame, decided: dict[str, Decision], place: int) -> int:
        """The pair that was decided last, perhaps in an earlier session; the present one if there is none."""
        names = suspects["pair_id"].to_list()
        earlier = [name for name in decided if name in names and names.index(name) != place]
        return names.index(earlier[-1]) if earlier else place


def _shown(row: dict[str, Any], place: int, total: int, decision: Decision | None) -> RenderableType:
    text = Text(_printable(row.get("text") or ""))
    if row["unsupported_words"]:
        text.highlight_words(row["unsupported_words"], "underline yellow", case_sensitive=False)
    lines: list[RenderableType] = [text, Text()]

    def line(label: str, value: str) -> None:
        lines.append(Text.assemble((f"{label:<16}", "dim"), _printable(value)))

    if row["unsupported_words"]:
        line("unsupported", ", ".join(row["unsupported_words"]))
    line("picture", row.get("picture") or f"image {row['image_id']}")
    if row.get("other_text"):
        line("fits better", f"{row['other_text']}  ({_sure(row['other_text_confidence'])})")
    if row["other_image_id"] is not None:
        named = row.get("other_picture") or row["other_image_id"]
        line("or this picture", f"{named}  ({_sure(row['other_image_confidence'])})")
    if decision is not None:
        line("decided", f"{decision.decision} by {decision.reviewer}")
    likely = f"{row['mismatch_probability']:.1%} likely mismatched"
    title = f"{place + 1:,} of {total:,}: {_printable(row['pair_id'])}, {likely}"
    return Panel(Group(*lines), title=Text(title), title_align="left")


def _sure(confidence: float) -> str:
    return "under 1% sure" if confidence < 0.01 else f"{confidence:.0%} sure"


def _printable(text: str) -> str:
    """Captions come from anywhere: nothing in them may command the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


@contextmanager
def _keys() -> Iterator[Iterator[str]]:
    """Single keys of a terminal; the first letters of lines from anything else."""
    if not sys.stdin.isatty():
        yield (line.strip()[:1].lower() for line in sys.stdin)
        return
    read, restore = _terminal()
    try:
        yield iter(read, "")
    finally:
        restore()


def _terminal() -> tuple[Callable[[], str], Callable[[], None]]:
    """How to read one key at once, and how to make the terminal as it was."""
    try:
        import termios
        import tty
    except ImportError as error:
        raise TruepairError(
            "This terminal cannot give single keys. Pipe them in, a letter a line: truepair review AUDIT < keys"
        ) from error
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)

    def read() -> str:
        key = sys.stdin.read(1).lower()
        return "" if key == "\x04" else key  # Ctrl-D ends a session as the end of a file does

    return read, lambda: termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no name for this user, as in some containers
        return ""


def _emit_status(audit: Audit, path: Path, as_json: bool) -> None:
    found = status(audit.suspects, read_decisions(path))
    shown = table(["", "pairs", "truly wrong", "95 % interval"])
    labels = {
        "precision": "all reviewed",
        "precision_of_random": "drawn at random",
        "wrong_among_not_flagged": "not flagged",
    }
    for name, label in labels.items():
        low, high = found[name]["interval"]
        share = found[name]["share"]
        if share is not None:
            shown.add_row(label, f"{found[name]['pairs']:,}", f"{share:.1%}", f"{low:.1%} to {high:.1%}")
    counts = ", ".join(f"{found[name]:,} {name}" for name in ("keep", "drop", "rematch"))
    shown.caption = f"{found['reviewed']:,} of {found['flagged']:,} flagged pairs reviewed: {counts}"
    emit(found, as_json=as_json, shown=None if as_json else shown)
