"""Images from hosts that a user allowed, within a size and a time. Without a list of hosts nothing is fetched.

Every address on the way must be http or https on an allowed host. A host may be on a private network only where it is
itself on the list and asked first: a redirect never leads to a private or link-local address, and a link-local address
(where clouds keep credentials) is asked only if it is listed as that very address. Proxies of the environment are not
used, since they would ask what is refused here.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urljoin, urlsplit

MAX_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_READ_BYTES = 1 << 16

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class NetworkRefusal(Exception):
    """Why an address is not read; its caller tells the row."""


@dataclass(frozen=True)
class _Limits:
    hosts: Sequence[str]
    max_bytes: int
    deadline: float
    timeout_s: float

    def remaining_s(self) -> float:
        remaining = self.deadline - time.monotonic()
        if remaining <= 0:
            raise NetworkRefusal(f"took longer than {self.timeout_s:g} s")
        return remaining


def fetch(url: str, *, hosts: Sequence[str], timeout_s: float, max_bytes: int) -> bytes:
    """The bytes at a URL. Raises NetworkRefusal for a host that is not allowed, too large or slow, and any failure."""
    limits = _Limits(hosts, max_bytes, time.monotonic() + timeout_s, timeout_s)
    for num_redirects in range(MAX_REDIRECTS + 1):
        try:
            body, location = _get(url, limits, is_redirect=num_redirects > 0)
        except (OSError, http.client.HTTPException, UnicodeError, ValueError) as error:
            raise NetworkRefusal(f"could not be fetched: {error or type(error).__name__}") from error
        if location is None:
            return body
        url = urljoin(url, location)
    raise NetworkRefusal(f"was redirected more than {MAX_REDIRECTS} times")


def _get(url: str, limits: _Limits, *, is_redirect: bool) -> tuple[bytes, str | None]:
    """The body, or where it redirects to."""
    parts = urlsplit(url)
    host, port = _allowed_host(parts, limits.hosts, is_redirect=is_redirect)
    address = _allowed_address(host, port, limits.hosts, is_redirect=is_redirect)
    connection = http.client.HTTPConnection(host, port, timeout=limits.remaining_s())
    try:
        connected = _connect(address, port, host if parts.scheme == "https" else None, limits)
        connection.sock = connected  # which it forgets once a response is the last
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", target, headers={"Accept": "image/*", "User-Agent": "mmrl"})
        response = connection.getresponse()
        location = response.getheader("Location")
        if response.status in _REDIRECTS and location:
            return b"", location
        if response.status != 200:
            raise NetworkRefusal(f"answered {response.status} {response.reason}")
        return _body(response, connected, limits), None
    finally:
        connection.close()


def _allowed_host(parts: SplitResult, hosts: Sequence[str], *, is_redirect: bool) -> tuple[str, int]:
    how = "redirects to" if is_redirect else "is on"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NetworkRefusal(f"{how} an address that is neither http: nor https:")
    host = parts.hostname
    default = 443 if parts.scheme == "https" else 80
    port = parts.port or default
    shown = f"[{host}]" if ":" in host else host
    known = [each.lower() for each in hosts]
    if f"{shown}:{port}" not in known and not (port == default and shown in known):
        name = shown if port == default else f"{shown}:{port}"
        raise NetworkRefusal(f"{how} the host {name}, which is not allowed; allow it with --allow-network {name}")
    return host, port


def _allowed_address(host: str, port: int, hosts: Sequence[str], *, is_redirect: bool) -> str:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [ipaddress.ip_address(str(info[4][0]).partition("%")[0]) for info in found]
    for address in addresses:
        if str(address) == host and not is_redirect:
            continue  # listed as that very address
        if _is_never_asked(address) or (is_redirect and not address.is_global):
            raise NetworkRefusal(f"leads to {address}, an address inside this network; it is not asked")
    return str(addresses[0])


def _is_never_asked(address: Address) -> bool:
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None:
        return _is_never_asked(mapped)
    return address.is_link_local or address.is_multicast or address.is_unspecified


def _connect(address: str, port: int, tls_host: str | None, limits: _Limits) -> socket.socket:
    """A connection to the address that was checked: the name is not looked up again."""
    plain = socket.create_connection((address, port), timeout=limits.remaining_s())
    if tls_host is None:
        return plain
    return ssl.create_default_context().wrap_socket(plain, server_hostname=tls_host)


def _body(response: http.client.HTTPResponse, connection: socket.socket, limits: _Limits) -> bytes:
    declared = response.getheader("Content-Length") or ""
    if declared.isdecimal() and int(declared) > limits.max_bytes:
        raise NetworkRefusal(f"declares {int(declared):,} bytes; at most {limits.max_bytes:,} are fetched")
    body = bytearray()
    while True:
        connection.settimeout(limits.remaining_s())
        piece = response.read1(_READ_BYTES)
        if not piece:
            return bytes(body)
        body += piece
        if len(body) > limits.max_bytes:
            raise NetworkRefusal(f"is larger than the {limits.max_bytes:,} bytes that are fetched")
