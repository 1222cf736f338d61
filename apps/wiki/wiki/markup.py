"""Text to HTML: headings, lists, links to pages, paragraphs. Everything else is text."""

from __future__ import annotations

import difflib
import html
import re
from urllib.parse import quote


def page_url(name: str, kind: str = "page") -> str:
    return f"/{kind}/{quote(name, safe='')}"


def link(name: str, kind: str = "page", words: str | None = None) -> str:
    """A link in HTML."""
    return f'<a href="{html.escape(page_url(name, kind))}">{html.escape(words or name)}</a>'


def to_html(text: str) -> str:
    """The body of a page."""
    return "\n".join(_block(block) for block in re.split(r"\n\s*\n", text.strip()) if block.strip())


def _block(block: str) -> str:
    lines = block.strip().split("\n")
    if heading := re.fullmatch(r"(={1,3}) *(.+?) *\1", lines[0]):
        level = len(heading[1]) + 1
        first = f"<h{level}>{_inline(heading[2])}</h{level}>"
        return first if len(lines) == 1 else f"{first}\n{_block(chr(10).join(lines[1:]))}"
    if all(line.startswith("* ") for line in lines):
        items = "".join(f"<li>{_inline(line[2:])}</li>" for line in lines)
        return f"<ul>{items}</ul>"
    return f"<p>{_inline(chr(10).join(lines))}</p>"


def _inline(text: str) -> str:
    # [[Name]] and [[Name|words]]
    parts = re.split(r"\[\[([^\[\]|\n]+)(?:\|([^\[\]|\n]+))?\]\]", text)
    shown = []
    for words, name, label in zip(parts[0::3], parts[1::3] + [None], parts[2::3] + [None]):
        shown.append(html.escape(words))
        if name is not None:
            shown.append(link(name.strip(), words=label))
    return "".join(shown)


def differences(old: str, new: str) -> str:
    """What changed between two texts, line by line."""
    kinds = {"+": "ins", "-": "del", " ": "span"}
    shown = []
    for line in difflib.ndiff(old.split("\n"), new.split("\n")):
        if (kind := kinds.get(line[0])) is not None:
            shown.append(f"<{kind}>{html.escape(line)}</{kind}>")
    return "<pre>" + "\n".join(shown) + "</pre>"
