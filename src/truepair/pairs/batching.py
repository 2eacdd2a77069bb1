"""Which pairs go into which batch: a pure function of seed and epoch."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truepair.errors import TruepairError

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class EpochOrder:
    """The batches of every epoch, the same on every machine for the same seed. Every row occurs once an epoch.

    rows: the pairs to go through, such as all of them or the clean part.
    batch_size: pairs in a batch of one process. The last batch may be smaller; it is kept unless drop_last is
        set, and a remainder of a single pair joins the batch before it, because a contrastive loss of one pair
        is no loss.
    lengths: one length per entry of `rows`. If it is given, texts of similar length share a batch, which saves
        padding; which of them meet still changes from epoch to epoch. Pairs are shuffled first and sorted only
        within pools of `pool` batches; then the batches are shuffled.
    world, rank: how many processes share an epoch, and which of them this is. They take the same number of
        steps, and step s of all processes together is step s of one process with the batch size times `world`.
    """

    rows: Rows
    batch_size: int
    seed: int
    lengths: NDArray[np.int64] | None = None
    pool: int = 50
    world: int = 1
    rank: int = 0
    drop_last: bool = False

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.pool < 1 or not 0 <= self.rank < self.world:
            raise TruepairError(
                f"batches of {self.batch_size}, pools of {self.pool}, process {self.rank} of {self.world}: "
                "sizes must be at least 1 and processes count from 0."
            )
        if self.lengths is not None and len(self.lengths) != len(self.rows):
            raise TruepairError(f"there are {len(self.lengths)} lengths for {len(self.rows)} rows.")
        if len(self) == 0:
            raise TruepairError(
                f"{len(self.rows)} pairs give no batch of {self.batch_size} for each of {self.world} processes. "
                "Use a smaller batch size."
            )

    def __len__(self) -> int:
        """Steps in an epoch."""
        full, rest = divmod(len(self.rows), self._step_size)
        return full + int(self._keeps(full, rest))

    def batches(self, epoch: int, start: int = 0) -> Iterator[Rows]:
        """The rows of this process's batches in this epoch, from batch `start` on."""
        for step in self._steps(epoch)[start:]:
            yield self.rows[step[self.rank :: self.world]]

    @property
    def _step_size(self) -> int:
        return self.batch_size * self.world

    def _keeps(self, full: int, rest: int) -> bool:
        # The remainder makes a step of its own if every process gets two pairs, or if there is no other step.
        enough = rest >= 2 * self.world or (not full and rest >= self.world)
        return enough and not self.drop_last

    def _steps(self, epoch: int) -> list[Rows]:
        """Positions in `rows`, one array per step, of all processes together."""
        # RandomState and MT19937 are frozen: the order will not change with a later numpy.
        generator = np.random.RandomState(np.random.MT19937(np.random.SeedSequence((self.seed, epoch))))
        order = generator.permutation(len(self.rows)).astype(np.int64)
        full, rest = divmod(len(order), self._step_size)
        body, tail = order[: full * self._step_size], order[full * self._step_size :]
        if self.lengths is not None:
            pool = self.pool * self._step_size
            pools = (body[first : first + pool] for first in range(0, len(body), pool))
            body = np.concatenate([p[np.argsort(self.lengths[p], kind="stable")] for p in pools] or [body])
        steps = list(body.reshape(full, self._step_size))
        if self._keeps(full, rest):
            steps.append(tail)
        elif rest and full and not self.drop_last:
            steps[-1] = np.concatenate([steps[-1], tail])
        if self.lengths is not None:
            steps = [steps[position] for position in generator.permutation(len(steps))]
        return steps
