"""What is asked and told of sites; what they are shown comes in and never goes out."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from sluice_api.models import StrictModel, Text
from sluice_core.domain.sites import MAX_FILE, MAX_PASSWORD, MAX_USER


class SitePath(BaseModel):
    host: Text = Field(max_length=255, description="A site's host.")


class SiteRequest(StrictModel):
    host: Text = Field(min_length=1, max_length=255, description="E.g. `example.com`.")
    cookies: Text | None = Field(
        None,
        max_length=MAX_FILE,
        description="Text of a Netscape cookie file, as browsers' extensions write it. What is of "
        "another host, or has expired, is left out and counted.",
    )
    username: Text | None = Field(None, max_length=MAX_USER, description="For HTTP Basic.")
    password: Text | None = Field(None, max_length=MAX_PASSWORD)


class SiteModel(BaseModel):
    """What is kept for a host, without a word of it."""

    host: str
    cookies: int = Field(description="How many.")
    expires_at: datetime | None = Field(
        description="When the first of its cookies ends; null: with its session."
    )
    password: bool = Field(description="Whether there is a user name with a password.")
    readable: bool = Field(description="false: no key of `SITE_SECRETS_KEY` opens it.")
    created_at: datetime
    updated_at: datetime
    used_at: datetime | None = Field(description="Last use, to the minute.")


class SiteWritten(SiteModel):
    foreign: int = Field(description="Cookies of other hosts in the file, which were left out.")
    expired: int = Field(description="Cookies whose time is over, likewise.")


class SiteList(BaseModel):
    sites: list[SiteModel]


class SiteRemoved(BaseModel):
    host: str
    removed: bool


class SitesResealed(BaseModel):
    done: int = Field(description="Are sealed with the first key now.")
    unreadable: list[str] = Field(description="Hosts whose content no key opens.")
