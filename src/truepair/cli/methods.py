"""truepair methods."""

import dataclasses

from truepair.cli.output import emit, table
from truepair.methods.registry import METHODS


def methods(json: bool = False) -> None:
    """The methods by name, how many networks each trains, and the values of its paper.

    Args:
        json: print JSON.
    """
    summary = [
        {
            "name": name,
            "title": method.title,
            "networks": method.networks,
            "divides": method.divides,
            "values": {field.name: field.default for field in dataclasses.fields(method)},
        }
        for name, method in METHODS.items()
    ]
    shown = table(["method", "what it is", "networks", "values"])
    shown.columns[1].justify = shown.columns[3].justify = "left"
    for entry in summary:
        values = ", ".join(f"{key}={value}" for key, value in entry["values"].items())  # type: ignore[attr-defined]
        shown.add_row(str(entry["name"]), str(entry["title"]), str(entry["networks"]), values)
    emit(summary, as_json=json, shown=shown)
