"""The one kind of error that is meant for a person: it names the place and the remedy."""

from pathlib import Path


class TruepairError(Exception):
    """Something the user can mend. The command line prints it without a traceback and exits with 2."""


class DataError(TruepairError):
    """A file that cannot be used as it is.

    where: the file. what: what is wrong, in a sentence. remedy: what to do about it. row: the line (text
    files, counted from 1) or the array row (counted from 0) that is at fault, as a phrase such as "line 7".
    """

    def __init__(self, where: str | Path, what: str, remedy: str, *, row: str | None = None) -> None:
        place = f"{where}: {row}" if row else f"{where}"
        super().__init__(f"{place}: {what} {remedy}")
        self.where, self.what, self.remedy, self.row = str(where), what, remedy, row
