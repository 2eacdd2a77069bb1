"""Small charts as inline SVG: they take the page's colours, light or dark, and tell series apart by shape as well."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import ArrayLike, NDArray

Mark = Literal["bars", "line", "dashed", "dotted", "points"]
Range = tuple[float, float]

# One coordinate system for all; narrow enough that the letters stay readable on a phone.
WIDTH, HEIGHT = 440, 264
LEFT, RIGHT, TOP, BOTTOM = 76, 12, 10, 46


@dataclass(frozen=True, eq=False)
class Series:
    """One set of values. For bars, x are the edges, one more than y. tone: 1 to 4, the page's colours."""

    label: str
    x: ArrayLike
    y: ArrayLike
    mark: Mark = "line"
    tone: int = 1

    def points(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """x and y as arrays."""
        return np.asarray(self.x, dtype=np.float64), np.asarray(self.y, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Chart:
    """A chart with its axes. reads: the chart in a sentence, for those who do not see it and as its caption.

    x_range, y_range: None to fit the values, from zero upwards for y. upright: x values to mark, with labels.
    """

    title: str
    reads: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    x_range: Range | None = None
    y_range: Range | None = None
    upright: Sequence[tuple[float, str]] = field(default_factory=tuple)

    def svg(self) -> Markup:
        """The chart as an <svg> element."""
        frame = _Frame(self._range(0, self.x_range), self._range(1, self.y_range))
        parts = [_axes(frame, self.x_label, self.y_label)]
        parts += [_drawn(series, frame) for series in self.series]
        for value, label in self.upright:
            x = frame.x(value)
            anchor = "end" if x > WIDTH * 0.7 else "start"
            shift = -4 if anchor == "end" else 4
            parts.append(
                Markup(
                    '<line class="mark" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>'
                    '<text x="{3}" y="{4}" text-anchor="{5}">{6}</text>'
                ).format(
                    _n(x),
                    TOP,
                    HEIGHT - BOTTOM,
                    _n(x + shift),
                    TOP + 12,
                    anchor,
                    label,
                )
            )
        return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
            WIDTH, HEIGHT, f"{self.title}. {self.reads}", Markup("").join(parts)
        )

    def legend(self) -> Markup:
        """What each series is, with a sample of its mark; a single series needs none."""
        if len(self.series) < 2:
            return Markup("")
        entries = Markup("").join(
            Markup('<li><svg class="key" viewBox="0 0 28 12" aria-hidden="true">{}</svg>{}</li>').format(
                _sample(series), series.label
            )
            for series in self.series
        )
        return Markup('<ul class="legend">{}</ul>').format(entries)

    def _range(self, axis: int, given: Range | None) -> Range:
        if given is not None:
            return given
        values = np.concatenate([series.points()[axis] for series in self.series])
        values = values[np.isfinite(values)]
        if not len(values):
            return 0.0, 1.0
        low, high = float(values.min()), float(values.max())
        if axis == 1:
            low, high = min(low, 0.0), high + 0.04 * (high - min(low, 0.0))
        return (low, high) if high > low else (low - 0.5, low + 0.5)


def percent(share: float, digits: int = 1) -> str:
    """A share as people read it, on one line."""
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between low and high."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) + 0.0 for number in range(first, math.floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class _Frame:
    across: Range
    up: Range

    def x(self, value: float) -> float:
        low, high = self.across
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        low, high = self.up
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)


def _axes(frame: _Frame, x_label: str, y_label: str) -> Markup:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for value in ticks(*frame.up):
        y = _n(frame.y(value))
        parts.append(
            Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(LEFT, right, y, y)
            + Markup('<text x="{}" y="{}" dy="4" text-anchor="end">{}</text>').format(LEFT - 6, y, _t(value))
        )
    parts += [
        Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(
            _n(frame.x(value)), bottom + 17, _t(value)
        )
        for value in ticks(*frame.across)
    ]
    middle = (TOP + bottom) / 2
    parts.append(
        Markup(
            '<line class="axis" x1="{0}" x2="{1}" y1="{2}" y2="{2}"/>'
            '<text class="name" x="{3}" y="{4}" text-anchor="middle">{5}</text>'
            '<text class="name" x="12" y="{6}" text-anchor="middle" transform="rotate(-90 12 {6})">{7}</text>'
        ).format(LEFT, right, bottom, _n((LEFT + right) / 2), HEIGHT - 8, x_label, _n(middle), y_label)
    )
    return Markup("").join(parts)


def _drawn(series: Series, frame: _Frame) -> Markup:
    x, y = series.points()
    tone = f"tone{series.tone}"
    if series.mark == "bars":
        base = _n(frame.y(max(0.0, frame.up[0])))
        steps = [f"M{_n(frame.x(x[0]))} {base}"]
        for (start, end), height in zip(pairwise(x), y, strict=True):
            level = _n(frame.y(height))
            steps.append(f"L{_n(frame.x(start))} {level}L{_n(frame.x(end))} {level}")
        steps.append(f"L{_n(frame.x(x[-1]))} {base}Z")
        return Markup('<path class="bars {}" d="{}"/>').format(tone, "".join(steps))
    places = [(frame.x(a), frame.y(b)) for a, b in zip(x, y, strict=True) if math.isfinite(a + b)]
    if series.mark == "points":
        return Markup("").join(_point(a, b, tone) for a, b in places)
    path = "L".join(f"{_n(a)} {_n(b)}" for a, b in places)
    dots = Markup("").join(_point(a, b, tone) for a, b in places) if len(places) == 1 else Markup("")
    return Markup('<path class="{} {}" d="M{}"/>').format(series.mark, tone, path) + dots if places else dots


def _point(x: float, y: float, tone: str) -> Markup:
    return Markup('<circle class="point {}" cx="{}" cy="{}" r="4"/>').format(tone, _n(x), _n(y))


def _sample(series: Series) -> Markup:
    tone = f"tone{series.tone}"
    if series.mark == "bars":
        return Markup('<rect class="bars {}" x="1" y="1" width="26" height="10"/>').format(tone)
    if series.mark == "points":
        return _point(14, 6, tone)
    return Markup('<path class="{} {}" d="M0 6L28 6"/>').format(series.mark, tone)


def _n(value: float) -> str:
    """A coordinate, short: a tenth of a unit is finer than anybody sees."""
    return f"{value:.1f}".removesuffix(".0")


def _t(value: float) -> str:
    return escape(f"{value:,.6g}" if abs(value) < 1e6 else f"{value:.3g}")
