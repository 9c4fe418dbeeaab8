"""yt-dlp in a child process.

`child` is the module for a `ForkServer`, `fetch_child` the same with half the memory (32 MB in
place of 65) for a worker that only fetches. The modules load yt-dlp, so other processes import
nothing but this package itself. Requests and events are JSON; failures come as the `error` event of
the runner's protocol.

Both kinds take `egress: {"allow": [rule, ...], "proxy": link or null}`, and `login`: what is shown
to sites, each to its own, and is never shown. With it, descriptions hold no cookies at all. ::

    {"cookies": text of a Netscape cookie file or null,
     "passwords": [{"host", "username", "password"}, ...]}

Where the link of an entry or the page of a description holds a word of it, the link stands there
masked, and whole in the event's `sealable`: to be kept sealed, and given back as `url` or `page`.

Times are seconds, sizes bytes.

`extract`: what is behind a link? ::

    {"kind": "extract", "url": "https://…",
     "playlist": "auto" | "single" | "all",  # auto: what the link itself names
     "items": "1-3,7,20-",                   # entries of a collection; all when left out
     "item": 3,                              # that entry alone, as a single media
     "shown_url": "https://…",               # where people see another spelling than `url`
     "sites": ["example.com", ...],          # something is kept for these, and is not in `login`
     "max_entries": 10000, "format": "bv*+ba/b", "format_sort": [...], "subtitles": ["en"]}

answers with one of ::

    {"event": "elsewhere", "sites": [0]}     # the link leads to these of `sites`: ask again with it
    {"event": "media", "info": {"title", "webpage_url", "duration", "thumbnail", "extractor", "id",
                                "item", "formats": [chosen ones], "subtitles": {lang: {...}}, …}}

    {"event": "collection", "title", "url", "id"}
    {"event": "entry", "index", "id", "title", "duration", "thumbnail", "url", "item", "media_url"}
    …  one per entry, as found; a job of its own passes `url` and `item` on as they are
    {"event": "end", "count", "truncated"}   # truncated: there are more than max_entries

`info` is at most `MAX_EVENT` bytes as JSON and is stored as it is; each of its formats has
`format_id, ext, protocol, vcodec, acodec, height, tbr, filesize, filesize_approx` as far as known.

`fetch`: one of these formats into a file. ::

    {"kind": "fetch", "info": info, "format_id": "137" (or "subtitle": "en"), "dest": "/…/137.mp4",
     "page": "https://…",                    # in place of info's webpage_url, where that is masked
     "resume": true, "reextract": true, "max_bytes": null, "rate_limit": null,
     "fragments_at_once": 4,
     "allow_gaps": false}                    # go without fragments that are missing for good, or
                                             # without the end of a file that always ends too early

answers with ::

    {"event": "start", "bytes"}              # already on disk from an earlier run
    {"event": "progress", "bytes", "total", "estimated", "speed", "eta", "fragment", "fragments"}
    {"event": "missing", "fragments"}        # another one is left out; how many in all
    {"event": "reextracted", "info"}         # the stored links were refused; keep this instead
    {"event": "done", "bytes", "resumed_bytes"}

Beside `dest` stand `.part`, `.ytdl`, `.version` and `.part-Frag*` until it is whole: with all of
them another run goes on from there. A file that changed at the site is fetched anew.

A file that is kept with gaps has `.gaps` beside it, which says what is missing and where it belongs
(`gaps.GapNote`). Fetched again it is filled: only what is missing is asked for. Meanwhile it lies
in `.gapped`.
"""

#: Longest event in bytes; `run(max_line=...)` must allow it.
MAX_EVENT = 8 * 1024 * 1024
