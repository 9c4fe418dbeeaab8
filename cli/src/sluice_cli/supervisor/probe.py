"""The few questions that the supervisor asks its parts; plain sockets, as clients are heavy."""

from __future__ import annotations

import json
import os
import socket


def accepts(path: str, *, timeout: float = 0.5) -> bool:
    """Whether something listens on the Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(timeout)
        try:
            client.connect(path)
        except OSError:
            return False
    return True


def is_ready(host: str, port: int, *, timeout: float = 0.5) -> bool:
    """Whether `GET /readyz` answers 200 within the time."""
    request = f"GET /readyz HTTP/1.0\r\nHost: {host}:{port}\r\n\r\n".encode()
    try:
        with socket.create_connection((host, port), timeout=timeout) as client:
            client.sendall(request)
            return client.recv(64).split(b" ", 2)[1:2] == [b"200"]
    except OSError:
        return False


def write_state(path: str, *, url: str, temporary: bool) -> None:
    """Tell other commands on this machine where the instance is; whole or not at all."""
    part = f"{path}.{os.getpid()}"
    with open(part, "w", encoding="utf-8") as file:  # noqa: PTH123  # pathlib costs memory
        json.dump({"pid": os.getpid(), "url": url, "temporary": temporary}, file)
    os.replace(part, path)  # noqa: PTH105  # pathlib costs memory


def remove_state(path: str) -> None:
    try:
        os.unlink(path)  # noqa: PTH108  # pathlib costs memory
    except FileNotFoundError:
        return
