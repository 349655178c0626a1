"""The values of `format` that are enforced, as regular expressions.

Knows the RFCs behind the formats, narrowed to what every validator accepts; knows no grammar. Invariant: each
expression is anchored and accepts nothing that violates its format.
"""

from __future__ import annotations

from decimal import Decimal

_YEAR = r"[0-9]{4}"
_LEAP = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_NON_ZERO = r"(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_DATE = (
    rf"(?:{_NON_ZERO}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    rf"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP}-02-29)"
).replace(f"|{_LEAP}", "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)")
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_ZONE = r"(?:Z|[+\-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9\-]{0,61}[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL}){{0,3}}"
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_H16 = r"[0-9a-fA-F]{1,4}"
_IPV6 = "|".join(
    [
        rf"(?:{_H16}:){{7}}{_H16}",
        *(rf"{_H16}(?::{_H16}){{{left}}}::{_H16}(?::{_H16}){{0,{4 - left}}}" for left in range(5)),
        rf"::{_H16}(?::{_H16}){{0,5}}",
        rf"{_H16}(?::{_H16}){{0,5}}::",
        "::",
    ]
)
_PCHAR = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})"
_TAIL = rf"(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
_URI = rf"[A-Za-z][A-Za-z0-9+.\-]*://{_HOST}(?::[0-9]{{1,4}})?(?:/{_PCHAR}*)*{_TAIL}"
_TIME_PART = r"T(?:[0-9]{1,4}H(?:[0-9]{1,4}M(?:[0-9]{1,4}S)?)?|[0-9]{1,4}M(?:[0-9]{1,4}S)?|[0-9]{1,4}S)"
_DATE_PART = r"(?:[0-9]{1,4}Y(?:[0-9]{1,4}M(?:[0-9]{1,4}D)?)?|[0-9]{1,4}M(?:[0-9]{1,4}D)?|[0-9]{1,4}D)"
_POINTER = r"(?:/(?:[^~/]|~[01])*)*"
_EMAIL = rf"[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~\-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~\-]+)*@{_HOST}"

FORMATS: dict[str, str] = {
    "date": rf"^{_DATE}$",
    "time": rf"^{_CLOCK}{_ZONE}$",
    "date-time": rf"^{_DATE}T{_CLOCK}{_ZONE}$",
    "duration": rf"^P(?:{_DATE_PART}(?:{_TIME_PART})?|{_TIME_PART}|[0-9]{{1,4}}W)$",
    "email": rf"^{_EMAIL}$",
    "idn-email": rf"^{_EMAIL}$",
    "hostname": rf"^{_HOST}$",
    "idn-hostname": rf"^{_HOST}$",
    "ipv4": rf"^{_BYTE}(?:\.{_BYTE}){{3}}$",
    "ipv6": rf"^(?:{_IPV6})$",
    "uri": rf"^{_URI}$",
    "iri": rf"^{_URI}$",
    "uri-reference": rf"^(?:{_URI}|(?:/{_PCHAR}+)+{_TAIL})$",
    "iri-reference": rf"^(?:{_URI}|(?:/{_PCHAR}+)+{_TAIL})$",
    "uuid": r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
    "json-pointer": rf"^{_POINTER}$",
    "relative-json-pointer": rf"^(?:0|[1-9][0-9]*)(?:#|{_POINTER})$",
}
"""By name of the format: the pattern that is enforced for it."""

NUMBER_FORMATS: dict[str, tuple[Decimal, Decimal] | None] = {
    "int32": (Decimal(-(2**31)), Decimal(2**31 - 1)),
    "int64": (Decimal(-(2**63)), Decimal(2**63 - 1)),
    "float": None,
    "double": None,
}
"""OpenAPI's formats of numbers: the range that is enforced, None where any JSON number will do."""
