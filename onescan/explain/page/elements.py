"""HTML elements as functions: text is escaped, what is HTML already is not."""

from __future__ import annotations

from html import escape


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, *inside: str, **attributes: str | int | None) -> Html:
    """An element.

    >>> tag("td", "a < b", class_="y")
    '<td class="y">a &lt; b</td>'
    """
    given = (
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{''.join(given)}>{joined(*inside)}</{name}>")


def joined(*parts: str) -> Html:
    """Parts one after the other."""
    return Html("".join(p if isinstance(p, Html) else escape(str(p)) for p in parts))


def quoted(text: str) -> Html:
    """A sentence in which `code` stands between backquotes."""
    pieces = text.split("`")
    return joined(
        *(tag("code", p) if i % 2 else Html(escape(p)) for i, p in enumerate(pieces))
    )
