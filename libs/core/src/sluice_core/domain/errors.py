"""Every failure has a code and a class, given where the outside library is called.

The codes are a contract with users, dashboards and scripts; words may change, codes may not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ErrorClass(StrEnum):
    """Who can mend a failure."""

    #: Time: the same run may succeed later without anybody doing anything.
    TRANSIENT = "transient"
    #: Nobody: the input itself is at fault, trying again gives the same answer.
    PERMANENT = "permanent"
    #: A person: credentials, settings or a decision are needed first.
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class CodeInfo:
    """What is known of a code without looking at the single case."""

    #: Class of a failure with this code unless the raiser knows better.
    error_class: ErrorClass
    #: One sentence for people: what happened.
    words: str
    #: One sentence for people: what they can do. Shown while tries are left and after the last.
    help: str
    #: Runs in all, first one included; None takes the stage's own setting.
    max_tries: int | None = None
    #: Seconds of the first delay before another run, at most; it doubles with each.
    base_delay: float = 2.0
    #: Runs of a stage that may end so before one of them counts as a try: it is no fault of the
    #: link's, and time mends it.
    free_runs: int = 0


_T, _P, _M = ErrorClass.TRANSIENT, ErrorClass.PERMANENT, ErrorClass.MANUAL

#: The closed set of error codes.
CODES: dict[str, CodeInfo] = {
    "unsupported_url": CodeInfo(
        _P, "this kind of link is not supported", "Paste the address of a page or media file."
    ),
    "not_found": CodeInfo(
        _P, "the link no longer exists", "Check the link in a browser and submit the right one."
    ),
    "gone": CodeInfo(_P, "the media was removed", "The site says that it will not come back."),
    "forbidden": CodeInfo(
        _M, "the site refuses access", "The site may want a login or another network; then retry."
    ),
    "login_required": CodeInfo(
        _M, "the site wants a login", "Store credentials for this site, then retry."
    ),
    "geo_blocked": CodeInfo(
        _M, "the site blocks this region", "Set a proxy in an allowed region, then retry."
    ),
    "age_restricted": CodeInfo(
        _M, "the site wants proof of age", "Store credentials of a grown-up account, then retry."
    ),
    "drm_protected": CodeInfo(
        _P, "the media is protected by DRM", "Protected media can't be fetched."
    ),
    "live_not_started": CodeInfo(
        _T,
        "the live event has not started",
        "Sluice tries several times; retry it once the event runs.",
        max_tries=5,
    ),
    "rate_limited": CodeInfo(
        _T,
        "the site asks for fewer requests",
        "Sluice waits as asked and tries several times; retry it later.",
    ),
    "network": CodeInfo(
        _T,
        "the connection failed",
        "Sluice tries several times; check that the host is reachable.",
    ),
    "timeout": CodeInfo(
        _T, "the site took too long to answer", "Sluice tries several times; retry it later."
    ),
    "stalled": CodeInfo(
        _T,
        "nothing more arrived",
        "Sluice tries several times, each from where the last one ended.",
    ),
    "server_error": CodeInfo(
        _T, "the site has a fault", "Sluice tries several times; retry it later."
    ),
    "too_large": CodeInfo(
        _P,
        "the media is larger than allowed",
        "Choose a smaller preset or raise SLUICE_MAX_FILE_SIZE.",
    ),
    "too_many_entries": CodeInfo(
        _P, "the collection is longer than allowed", "Choose items or raise SLUICE_MAX_ENTRIES."
    ),
    "disk_full": CodeInfo(
        _T,
        "the disk is full",
        "Free some space; Sluice tries several times.",
        # A sweep, or the end of a job, must come first. What never fits is told within a minute.
        base_delay=10.0,
    ),
    "storage_error": CodeInfo(
        _T,
        "the storage does not answer rightly",
        "Sluice tries again by itself; check the storage.",
        # Minutes: keys that were taken back, a mount that is made anew.
        base_delay=10.0,
        free_runs=6,
    ),
    "blocked_address": CodeInfo(
        _P,
        "the link leads to an address that is not public",
        "An operator can allow it with SLUICE_EGRESS_ALLOW.",
    ),
    "bad_media": CodeInfo(_P, "what arrived is not playable media", "Check the link in a browser."),
    "no_media": CodeInfo(
        _P, "there is no media behind the link", "Paste the link of a page that shows media."
    ),
    "incomplete": CodeInfo(
        _T, "parts of the media are missing", "A new try fetches only what is missing."
    ),
    "transcode_failed": CodeInfo(
        _T, "the media could not be converted", "Try another preset.", max_tries=2
    ),
    "worker_lost": CodeInfo(
        _M, "the job took its worker down", "An operator can look at the job and retry it."
    ),
    "hard_time_limit": CodeInfo(
        _M, "the job ran longer than allowed", "Raise the time limit of the stage, then retry."
    ),
    "overloaded": CodeInfo(
        _T,
        "the machine has too much to do",
        "Sluice tries again by itself; give the machine less to do at once, or more to do it with.",
        # An hour or more, see `retry.decide`; what lasts longer is nothing that passes by itself.
        base_delay=10.0,
        free_runs=20,
    ),
    "canceled": CodeInfo(_P, "canceled", "Retry starts it again."),
    # Unknown failures may heal by themselves, but not for long.
    "internal": CodeInfo(
        _T, "something unexpected went wrong", "The log of this attempt says more.", max_tries=3
    ),
}

#: What is kept of a message, in characters: enough to read, too little to fill a table.
MAX_MESSAGE = 500


class SluiceError(Exception):
    """A failure with a code of `CODES`.

    Args:
        message: one sentence for people, cut at `MAX_MESSAGE`; the code's own words when empty.
        error_class: when the single case is known to differ from the code's usual class.
        retry_after: seconds that the other side asked us to wait.

    """

    code: str = "internal"

    def __init__(
        self,
        message: str = "",
        *,
        code: str | None = None,
        error_class: ErrorClass | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.code = code or type(self).code
        info = CODES[self.code]
        self.message = (message or info.words)[:MAX_MESSAGE]
        self.error_class = error_class or info.error_class
        self.retry_after = retry_after
        super().__init__(self.message)

    @property
    def help(self) -> str:
        """One sentence on what a person can do."""
        return CODES[self.code].help


class StoreAwayError(Exception):
    """The database does not answer. Never a job's failure: work pauses until it is back."""

    @property
    def sentence(self) -> str:
        """For people, with what the database's driver says."""
        return f"The database does not answer: {self}."


class StoreFullError(StoreAwayError):
    """The database answers and has no room to write: its disk is full."""

    @property
    def sentence(self) -> str:
        return f"The database has no room to write: {self}."


class BrokerAwayError(Exception):
    """Redis does not answer. Never a job's failure: the outbox keeps what must be sent."""


class ChildLostError(Exception):
    """A media child was ended from outside: as when its worker is lost, and no try of the job's."""


class StaleRunError(Exception):
    """Another run owns the job by now; nothing that this run does may be written."""


class CanceledRunError(StaleRunError):
    """A person canceled the job while this run held it."""


class HandBackError(Exception):
    """The worker shuts down: the run gives its job back, uncounted."""


class ConfigError(Exception):
    """Wrong configuration, told in one sentence; the process exits 2."""


class NotYetError(ConfigError):
    """What waiting may mend: a store that is away, or one that is still being set up."""
