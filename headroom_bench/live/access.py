"""How a target is reached: where, with which headers, trusting whom, over which proxy."""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field

from headroom_bench.errors import UserError
from headroom_bench.live.exchange import Origin
from headroom_bench.live.timeouts import Timeouts
from headroom_bench.redaction import hide
from headroom_bench.secret_words import is_variable
from headroom_bench.target import ENVIRONMENT, Target, checked_headers, proxy_fields


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy, spoken to over TLS or not."""

    url: str
    login: tuple[str, str] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Access:
    """The same for the measured path and for the control plane."""

    origin: Origin
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = None
    """None without TLS."""
    proxy: Proxy | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)


def access_to(
    target: Target, url: str, timeouts: Timeouts, environment: Mapping[str, str]
) -> Access:
    """The access to a target that is up at `url`.

    Raises:
        UserError: the URL, the CA file, the proxy or a variable that should hold a key is wrong.
    """
    origin = Origin.of(url)
    return Access(
        origin,
        request_headers(target, environment),
        tls_context(target.ca_file, target.insecure) if origin.tls else None,
        None if origin.is_loopback else _proxy(target, origin),
        timeouts,
    )


def request_headers(target: Target, environment: Mapping[str, str]) -> dict[str, str]:
    """What every request carries. Raises `UserError` where a variable holds no key."""
    sent = {}
    for name, value in target.headers.items():
        variable = value.removeprefix(f"{ENVIRONMENT}:")
        sent[name] = value if variable == value else _from(environment, variable)
    if target.api_key_env is not None:
        if any(name.lower() == "authorization" for name in sent):
            raise UserError(
                "both api_key_env and a header or the URL say who we are; leave one out"
            )
        sent["Authorization"] = f"Bearer {_from(environment, target.api_key_env)}"
    return checked_headers(sent.items(), "headers")


def _from(environment: Mapping[str, str], variable: str) -> str:
    key = environment.get(variable, "").strip()
    if not key:
        if not is_variable(variable):
            hide(variable)  # the key itself, most likely, put there by mistake
        raise UserError(
            f"the environment variable {variable} holds no API key; name a variable that does, "
            "such as OPENAI_API_KEY"
        )
    hide(key)
    return key


def tls_context(ca_file: str | None, insecure: bool) -> ssl.SSLContext:
    """Whom to trust. Raises `UserError` for a file that holds no certificates."""
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as why:
        told = getattr(why, "strerror", None) or str(why)
        if ca_file is None:
            raise UserError(f"no TLS here: {told}; is SSLKEYLOGFILE set wrongly?") from None
        raise UserError(f"ca_file {ca_file}: cannot be used: {told}; it must be PEM") from None
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _proxy(target: Target, origin: Origin) -> Proxy | None:
    """The proxy that was asked for; the environment's only where the target says `env`."""
    if target.proxy is None:
        return None
    if target.proxy != ENVIRONMENT:
        login = target.proxy_login
        user, _, password = (login or "").partition(":")
        return Proxy(target.proxy, (user, password) if login else None)
    if urllib.request.proxy_bypass(origin.host):
        return None
    known = urllib.request.getproxies()
    found = known.get("https" if origin.tls else "http") or known.get("all")
    if not found:
        raise UserError("proxy env: the environment names no proxy for this target")
    try:
        named = proxy_fields(found if "://" in found else f"http://{found}")
    except UserError as why:
        raise UserError(f"proxy env: what the environment names is none: {why}") from None
    user, _, password = named.get("proxy_login", "").partition(":")
    return Proxy(named["proxy"], (user, password) if user or password else None)
