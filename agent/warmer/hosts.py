"""Where a registry's images are asked for: the runtime's own hosts.toml files.

In: the folder that containerd reads (`certs.d`). Out: endpoints of a host, mirrors first, the registry itself last.

Invariant: what the runtime would not ask, we do not ask either; a file that cannot be read means the registry itself
over HTTPS, as it does for containerd. Credentials go to the registry itself alone, never to a mirror.

Not here: HTTP (registry.py).
"""

import dataclasses
import pathlib
import tomllib
import urllib.parse
from typing import Any

_REAL_HOSTS = {"docker.io": "registry-1.docker.io"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One place to ask."""

    scheme: str
    host: str
    """host or host:port"""
    path: str = "/v2"
    is_mirror: bool = False
    skip_verify: bool = False
    ca: tuple[str, ...] = ()


def endpoints(folder: pathlib.Path, host: str) -> tuple[Endpoint, ...]:
    """Return where to ask for images of a host, in order."""
    content = _read(folder, host)
    real = _REAL_HOSTS.get(host, host)
    own = _endpoint(str(content.get("server", f"https://{real}")), content, is_mirror=False)
    mirrors = []
    said = content.get("host")
    for url, options in said.items() if isinstance(said, dict) else ():
        if isinstance(options, dict) and _can_pull(options.get("capabilities")):
            found = _endpoint(url, options, is_mirror=True)
            mirrors.append(dataclasses.replace(found, is_mirror=(found.scheme, found.host) != (own.scheme, own.host)))
    return tuple(dict.fromkeys((*mirrors, own)))


def _read(folder: pathlib.Path, host: str) -> dict[str, Any]:
    name, _, port = host.rpartition(":")
    names = [host, *([f"{name}_{port}_"] if name else []), "_default"]
    for each in names:
        try:
            return tomllib.loads((folder / each / "hosts.toml").read_text())
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
            continue
    return {}


def _endpoint(url: str, options: dict[str, Any], *, is_mirror: bool) -> Endpoint:
    parts = urllib.parse.urlsplit(url if "://" in url else f"https://{url}")
    path = parts.path.rstrip("/")
    if not options.get("override_path") and not path.endswith("/v2"):
        path += "/v2"
    ca = options.get("ca")
    return Endpoint(
        scheme=parts.scheme,
        host=parts.netloc,
        path=path,
        is_mirror=is_mirror,
        skip_verify=bool(options.get("skip_verify", False)),
        ca=(ca,) if isinstance(ca, str) else tuple(map(str, ca)) if isinstance(ca, list) else (),
    )


def _can_pull(capabilities: object) -> bool:
    """Tell whether a host serves what we ask for; containerd takes an absent list for all of it."""
    return capabilities is None or (
        isinstance(capabilities, list) and {"pull", "resolve"} <= set(map(str, capabilities))
    )
