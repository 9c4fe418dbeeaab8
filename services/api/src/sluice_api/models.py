"""What requests and answers look like: validates, and is the source of the OpenAPI document."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from flask_openapi3.models import RawModel
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from sluice_api.text import checked_json, checked_text
from sluice_core.adapters.ids import FORM
from sluice_core.domain.errors import SluiceError
from sluice_core.domain.items import Items
from sluice_core.domain.job import Request
from sluice_core.domain.lanes import Lane
from sluice_core.domain.states import Status

#: Most links in one batch.
MAX_BATCH = 10_000
#: States named at once, however often each.
MAX_STATES = 100
#: Jobs on one page of a list.
PAGE, MAX_PAGE = 50, 200
#: Names in one object, known or not: each unknown one is a complaint of its own.
MAX_NAMES = 100
#: Far beyond any link; how long one may be is judged with the link itself.
MAX_URL = 100_000
ID = f"^{FORM}$"
IDS = f"^{FORM}(,{FORM})*$"
PARENT = f"^({FORM}|none)$"

Text = Annotated[str, AfterValidator(checked_text)]
#: `Lane`, as clients send it.
Priority = Literal["critical", "high", "default", "low", "bulk"]
LANGUAGE = r"^[A-Za-z0-9.*_-]{1,32}$"


def _checked_items(text: str) -> str:
    try:
        Items.parse(text)
    except SluiceError:
        raise ValueError("places in the list such as 1-3,7 are needed, the first is 1") from None
    return text


#: `Items`, as clients send them.
Places = Annotated[Text, Field(min_length=1, max_length=500), AfterValidator(_checked_items)]
Language = Annotated[Text, Field(pattern=LANGUAGE)]
#: The year 9999 is later than any clock here may show.
_MAX_TIME = 253_370_764_800.0


def _moment(value: object) -> float:
    """Unix seconds of an RFC 3339 time."""
    if not isinstance(value, str):
        raise ValueError("a time such as 2026-01-31T12:00:00Z is needed")  # noqa: TRY004  # told as such
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("a time such as 2026-01-31T12:00:00Z is needed") from None
    if moment.tzinfo is None:
        raise ValueError("the time needs a zone, e.g. Z at its end")
    try:
        seconds = moment.astimezone(UTC).timestamp()
    except OverflowError:
        raise ValueError("the time is out of range") from None
    if not 0 <= seconds < _MAX_TIME:
        raise ValueError("the time is out of range")
    return seconds


Moment = Annotated[
    float,
    BeforeValidator(_moment),
    Field(json_schema_extra={"type": "string", "format": "date-time"}),
]


class _KnownSchema(BaseModel):
    """Headers and queries: the framework asks for their schema with each request."""

    @classmethod
    def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As pydantic's; made once where nothing is asked of its form."""
        if args or kwargs:
            return super().model_json_schema(*args, **kwargs)
        return _schema_of(cls)


@cache
def _schema_of(model: type[_KnownSchema]) -> dict[str, Any]:
    return super(_KnownSchema, model).model_json_schema()


class StrictModel(_KnownSchema):
    """What clients send: nothing unknown, nothing guessed."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _not_too_many(cls, value: Any) -> Any:
        if isinstance(value, dict) and len(value) > MAX_NAMES:
            raise ValueError(f"more than {MAX_NAMES} names")
        return value


class JobRequest(StrictModel):
    """One link to fetch."""

    url: Text = Field(
        max_length=MAX_URL,
        description="The link: http or https, to a public address.",
        examples=["https://example.com/watch?v=1"],
    )
    preset: Text = Field("best", max_length=64, description="A name from `GET /v1/presets`.")
    priority: Priority = "default"
    playlist: Literal["auto", "single", "all"] = Field(
        "auto", description="What to do with a link that holds several media."
    )
    items: Places | None = Field(None, description="Entries to take of a collection, e.g. `1-3,7`.")
    subtitles: list[Language] = Field(
        default_factory=list, max_length=32, description="Languages of subtitles to keep."
    )
    allow_gaps: bool = Field(
        default=False,
        description="Keep the media when parts of it are missing for good: the job then ends"
        " PARTIAL and names them in `gaps`. By default it fails.",
    )
    not_before: Moment | None = Field(None, description="Nothing starts before this time.")
    callback_url: Text | None = Field(None, max_length=MAX_URL, description="Told of the end.")
    force: bool = Field(
        default=False, description="Make a new job although the same request has one already."
    )
    metadata: Annotated[dict[str, Any], AfterValidator(checked_json)] = Field(
        default_factory=dict, description="Handed back as it came."
    )

    def to_request(self, *, url: str, callback_url: str | None) -> Request:
        """The domain's form, with the links in their normal spelling."""
        return Request(
            url=url,
            preset=self.preset,
            lane=Lane(self.priority),
            playlist=self.playlist,
            items=self.items,
            subtitles=tuple(self.subtitles),
            allow_gaps=self.allow_gaps,
            not_before=self.not_before,
            callback_url=callback_url,
            metadata=self.metadata,
        )


_ENTRIES: dict[str, Any] = {
    "type": "array",
    "minItems": 1,
    "maxItems": MAX_BATCH,
    "items": {"anyOf": [{"type": "string"}, {"$ref": "#/components/schemas/JobRequest"}]},
}
_JOBS: dict[str, Any] = {
    "type": "object",
    "properties": {"jobs": _ENTRIES},
    "required": ["jobs"],
    "additionalProperties": False,
}


class BatchBody(RawModel):
    """`{"jobs": [...]}`, a list, or NDJSON; an entry is a link or an object as for one job."""

    mimetypes: ClassVar[list[str]] = ["application/json", "application/x-ndjson"]  # type: ignore[misc]
    #: For the document, which can't be made of a raw body.
    content: ClassVar[dict[str, Any]] = {
        "application/json": {"schema": {"anyOf": [_JOBS, _ENTRIES]}},
        "application/x-ndjson": {
            "schema": {"type": "string", "description": "An entry a line; a link needs no quotes."}
        },
    }


class JobPath(BaseModel):
    id: Text = Field(pattern=ID, description="Job id.")


class FilePath(JobPath):
    name: Text = Field(max_length=1024, description="Name of a file of the job.")


class FileQuery(BaseModel):
    inline: Literal["0", "1"] = Field("0", description="1: to be played, not to be kept.")
    ticket: str | None = Field(None, max_length=512, description="Instead of a key, see `/link`.")


class SubmitHeader(_KnownSchema):
    model_config = ConfigDict(extra="ignore")

    idempotency_key: str | None = Field(
        None,
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="The same key and body within 24 h give the same job.",
    )


class ListQuery(StrictModel):
    model_config = ConfigDict(extra="forbid", strict=False)

    status: list[Status] = Field(
        default_factory=list, max_length=MAX_STATES, description="Any of these states."
    )
    q: Text | None = Field(
        None, max_length=200, description="Start of title, link or id, or words of the title."
    )
    parent: str | None = Field(
        None,
        pattern=PARENT,
        description="Children of this job; `none`: only jobs that are no children.",
    )
    preset: Text | None = Field(None, max_length=64)
    since: Moment | None = Field(None, description="Changed since.")
    cursor: str | None = Field(None, pattern=ID, description="`next_cursor` of the page before.")
    limit: int = Field(PAGE, ge=1, le=MAX_PAGE)


class EventsHeader(_KnownSchema):
    model_config = ConfigDict(extra="ignore")

    last_event_id: str | None = Field(
        None, alias="Last-Event-ID", description="`id` of the last event that was seen."
    )


class EventsQuery(_KnownSchema):
    ids: str | None = Field(
        None,
        max_length=27 * 500,
        pattern=IDS,
        description="Only these jobs, with commas between.",
    )


class ProgressModel(BaseModel):
    """How far the present stage is; null is an honest "unknown"."""

    percent: float | None
    bytes: int | None
    total_bytes: int | None
    bytes_per_second: float | None
    eta_seconds: float | None


class ChildrenModel(BaseModel):
    total: int = Field(description="All others add up to it.")
    success: int
    partial: int = Field(description="Kept, although something of the media is missing.")
    failed: int
    canceled: int
    active: int


class JobErrorModel(BaseModel):
    code: str
    error_class: Literal["transient", "permanent", "manual"] = Field(alias="class")
    message: str
    help: str


class SpanModel(BaseModel):
    """Neighbours that are missing: fragments from 1, bytes from 0; null where it is not known."""

    first: int | None
    last: int | None
    start: float | None = Field(description="Seconds from the beginning.")
    end: float | None


class GapModel(BaseModel):
    """What a PARTIAL job is kept without, of one stream; all of it where `unit` is null."""

    kind: Literal["muxed", "video", "audio", "subtitle"]
    stream: str = Field(description="The site's name of the format; of subtitles the language.")
    code: str = Field(description="Why, as in errors.")
    unit: Literal["fragments", "bytes"] | None = Field(description="What is counted.")
    missing: int | None
    total: int | None = Field(description="With those that are there.")
    seconds: float | None = Field(description="Of all that is missing.")
    spans: list[SpanModel] = Field(description="In order, the first 50; `missing` counts all.")


class FileModel(BaseModel):
    name: str
    kind: Literal["video", "audio", "image", "playlist", "subtitle", "other"]
    bytes: int
    sha256: str
    content_type: str
    url: str


class LinksModel(BaseModel):
    self: str
    events: str
    cancel: str
    retry: str


class JobModel(BaseModel):
    """A job; every key is always there."""

    id: str
    url: str
    status: Status
    step: str = Field(description="Where it is, in words.")
    waiting_for: Literal["worker", "retry", "time", "children"] | None
    queue_position: int | None = Field(description="1 is the next one of its queue.")
    retry_at: datetime | None
    attempt: int = Field(description="Runs of the present stage; 0 before the first one.")
    priority: Lane
    preset: str
    progress: ProgressModel
    title: str | None
    extractor: str | None
    duration: float | None
    thumbnail: str | None
    parent_id: str | None
    children: ChildrenModel
    error: JobErrorModel | None
    gaps: list[GapModel]
    files: list[FileModel]
    metadata: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    expires_at: datetime | None
    links: LinksModel


class JobList(BaseModel):
    jobs: list[JobModel]
    next_cursor: str | None


class JobDeleted(BaseModel):
    id: str
    deleted: Literal[True]


class AttemptModel(BaseModel):
    """One run of one stage, and what became of its message."""

    stage: str
    number: int
    epoch: int
    worker: str
    message_id: str
    queue: str
    published_at: datetime | None
    delivered_at: datetime | None
    claimed_at: datetime
    ended_at: datetime | None
    outcome: (
        Literal["ok", "failed", "retry", "handed_back", "lost", "child_lost", "canceled"] | None
    )
    error: dict[str, str] | None


class AttemptList(BaseModel):
    attempts: list[AttemptModel]


class BatchLine(BaseModel):
    """What became of one line: `id` or `error`."""

    line: int
    id: str | None = None
    status: Status | None = None
    existing: bool | None = None
    links: dict[str, str] | None = None
    error: dict[str, str] | None = None


class BatchResult(BaseModel):
    accepted: int
    refused: int
    results: list[BatchLine]


class FileLink(BaseModel):
    url: str
    expires_at: datetime


class PresetModel(BaseModel):
    name: str
    title: str
    kind: str


class PresetList(BaseModel):
    presets: list[PresetModel]
    default: str


class ReadyQuery(BaseModel):
    """What not to look at."""

    exclude: list[Literal["database", "redis", "storage"]] = []


class Health(BaseModel):
    """`parts` has a sentence for each part that is not `ok`."""

    ok: bool
    parts: dict[str, str]


class WrongField(BaseModel):
    field: str = Field(description="Its way, with full stops between; `body` for all of it.")
    message: str


class Problem(BaseModel):
    """RFC 9457, with a `code` for programs."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    trace_id: str = Field(description="In the log lines of the same request, and of its jobs.")
    help: str | None = Field(None, description="What to do about a link that was refused.")
    errors: list[WrongField] | None = Field(None, description="What is wrong with which field.")
    job_status: Status | None = Field(None, description="With 409: the state that forbids it.")
