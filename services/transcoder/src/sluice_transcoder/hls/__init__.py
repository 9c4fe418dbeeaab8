"""HLS packages: a ladder of renditions, their playlists, and the master playlist that names them.

Each rendition is one file of fragmented MP4 that its playlist cuts into segments by byte ranges: a
job has a handful of files, not thousands. Links between them are plain names beside each other.
"""
