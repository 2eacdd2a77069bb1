"""One thread for linear algebra."""

from contextlib import AbstractContextManager
from typing import Any

from threadpoolctl import threadpool_limits


def one_blas_thread() -> AbstractContextManager[Any]:
    """Linear algebra on one thread, from the call on, until the block is left.

    The last bit of a sum then does not depend on the number of cores, and the small matrices here are faster.
    """
    limits: AbstractContextManager[Any] = threadpool_limits(1, user_api="blas")
    return limits
