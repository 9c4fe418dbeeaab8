"""Exit codes, a contract with scripts, and the exception that carries one."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What the exit code says."""

    DONE = 0
    #: A job failed, or was canceled, or a collection is incomplete.
    JOB_FAILED = 1
    #: Wrong option, wrong setting, a request that the server refuses.
    WRONG_USE = 2
    UNREACHABLE = 3
    #: Ended by Ctrl-C, as shells say it.
    INTERRUPTED = 130


class Stop(Exception):  # noqa: N818  # ending with a code is not always an error
    """End the command with a code and, unless empty, one sentence."""

    def __init__(self, code: Exit, sentence: str = "") -> None:
        self.code = code
        super().__init__(sentence)
