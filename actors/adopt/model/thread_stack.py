"""A stack for the two hooks of a call, where a model calls modules in several threads at once."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

Item = TypeVar("Item")


class ThreadStack(threading.local, Generic[Item]):
    """What has begun and not ended yet: each thread has its own items."""

    def __init__(self) -> None:  # called anew in each thread
        self.items: list[Item] = []
