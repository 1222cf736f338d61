"""The wiki's pages, as a WSGI application.

It uses the storage as if it were alone. What makes each request one operation is around it:
:meth:`wiki.storage.Storage.wrap`.
"""

from __future__ import annotations

import errno
import html
import time
from collections.abc import Callable, Iterable
from urllib.parse import parse_qs

from .markup import differences, link, page_url, to_html
from .storage import (
    TEXT_BYTES_MAX,
    BadName,
    EditConflict,
    Revision,
    Storage,
    check_name,
    number_up_to,
    one_line,
    words_of,
)

#: The longest body of a request: a text of the greatest length, written as a form writes it.
BODY_BYTES_MAX = 3 * TEXT_BYTES_MAX + 4096
STYLE = (
    "body{font-family:sans-serif;max-width:50em;margin:2em auto}textarea{width:100%;height:20em}"
    "ins{background:#dfd}del{background:#fdd}.conflict{border:2px solid #c00;padding:0 1em}nav a{margin-right:1em}"
)
HEADERS = [
    ("Content-Type", "text/html; charset=utf-8"),
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-cache"),
]

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

Response = tuple[str, list[tuple[str, str]], bytes]


class Refused(Exception):
    """A request that is answered with a status and a sentence."""

    def __init__(self, status: str, why: str) -> None:
        super().__init__(why)
        self.status = status


def make(storage: Storage) -> Callable:
    """The application on a storage, each request one operation."""
    application = Wiki(storage)
    return storage.wrap(application, max_body=BODY_BYTES_MAX, refusal=refusal)


class Wiki:
    """The application, which relies on others to make a request one operation."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __call__(self, environ: dict, start_response: Callable) -> Iterable[bytes]:
        try:
            status, headers, body = self._answer(environ)
        except Refused as refused:
            status, headers, body = _page(refused.status, refused.status[4:], _sentence(str(refused)))
        except BadName as error:
            status, headers, body = _page("400 Bad Request", "Bad Request", _sentence(str(error)))
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            status, headers, body = refusal(environ, error)
        start_response(status, headers)
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]

    def _answer(self, environ: dict) -> Response:
        kind, name = _route(environ)
        method = environ["REQUEST_METHOD"]
        if method not in ("GET", "HEAD") and (method, kind) != ("POST", "edit"):
            raise Refused("405 Method Not Allowed", "this page can only be looked at")
        query = _fields(environ.get("QUERY_STRING", ""))
        if kind == "edit":
            check_name(name)
            return self._save(name, environ) if method == "POST" else self._edit(name, query)
        answers = {
            "": lambda: self._index(),
            "search": lambda: self._search(query.get("q", "")),
            "page": lambda: self._show(name, query),
            "history": lambda: self._history(name),
            "diff": lambda: self._differences(name, query),
        }
        if kind not in answers:
            raise Refused("404 Not Found", "there is no such page")
        return answers[kind]()

    def _index(self) -> Response:
        rows = "".join(f"<li>{link(page.name)} {_by(page)}</li>" for page in self._storage.pages())
        return _page("200 OK", "All pages", f"<ul>{rows}</ul>")

    def _search(self, text: str) -> Response:
        # What no page can be found by is left out.
        words = sorted(words_of("", text))
        names = self._storage.search(words)
        found = "".join(f"<li>{link(name)}</li>" for name in names)
        return _page("200 OK", f"Search: {text}", f"<p>{len(names)} found</p><ul>{found}</ul>", search=text)

    def _show(self, name: str, query: dict[str, str]) -> Response:
        shown = self._get(name, query)
        if shown is None or not shown.text:
            body = f"<p>There is no such page. {link(name, 'edit', 'Write it')}</p>"
            if shown is not None:
                body += f"<p>It was deleted: {link(name, 'history', 'its history')}.</p>"
            return _page("404 Not Found", name, body, etag=shown)
        return _page("200 OK", name, f"<main>{to_html(shown.text)}</main><p>{_by(shown)}</p>", name, etag=shown)

    def _edit(self, name: str, query: dict[str, str]) -> Response:
        latest = self._storage.latest(name)
        # An old revision may be the beginning of the next one.
        start = self._get(name, query) if latest else None
        base = latest.number if latest else 0
        form = _form(name, base, start.text if start else "")
        return _page("200 OK", f"Editing {name}", form, name, etag=latest)

    def _save(self, name: str, environ: dict) -> Response:
        form = _fields(_body(environ))
        base = _number(form.get("base", ""), "base")
        text = form.get("text", "").replace("\r\n", "\n").replace("\r", "\n")
        if "\0" in text:
            raise Refused("400 Bad Request", "a text has no NUL characters")
        if len(text.encode()) > TEXT_BYTES_MAX:
            raise Refused("413 Content Too Large", f"a text has {TEXT_BYTES_MAX} bytes at most")
        author, comment = one_line(form.get("author", "")) or "nobody", one_line(form.get("comment", ""))
        try:
            saved = self._storage.save(name, base, text, author, comment, int(time.time()))
        except EditConflict as conflict:
            return self._conflict(name, base, text, author, conflict.current)
        status, headers, body = _page("303 See Other", "Saved", f"<p>{link(name)}</p>", etag=saved)
        return status, [*headers, ("Location", page_url(name))], body

    def _conflict(self, name: str, base: int, text: str, author: str, current: Revision | None) -> Response:
        """What came in between, what is to be saved, and a form to go on with: nothing typed is lost."""
        old = current.text if current else ""
        number = current.number if current else 0
        who = f"{html.escape(current.author)} has saved revision {number}" if current else "the page is not there"
        body = (
            f'<div class="conflict" id="conflict"><h2>Edit conflict</h2><p>You began with revision {base}; '
            f"meanwhile {who}. Nothing of yours has been saved yet. Below is what your text would "
            f"change of theirs.</p>{differences(old, text)}</div>"
            + _form(name, number, text, author)
        )
        return _page("409 Conflict", f"Edit conflict: {name}", body, name, etag=current)

    def _history(self, name: str) -> Response:
        revisions = self._storage.history(name)
        if not revisions:
            raise Refused("404 Not Found", "there is no such page")
        rows = []
        for revision in revisions:
            url, n = html.escape(page_url(name)), revision.number
            change = html.escape(f"{page_url(name, 'diff')}?from={n - 1}&to={n}")
            rows.append(
                f'<li value="{n}"><a href="{url}?revision={n}">{_by(revision)}</a> '
                f'{html.escape(revision.comment)} <a href="{change}">changes</a></li>'
            )
        return _page("200 OK", f"History of {name}", f"<ol>{''.join(rows)}</ol>", name, etag=revisions[0])

    def _differences(self, name: str, query: dict[str, str]) -> Response:
        old, new = (_number(query.get(key, ""), key) for key in ("from", "to"))
        before = self._storage.revision(name, old) if old else None
        after = self._storage.revision(name, new)
        if after is None or (old and before is None):
            raise Refused("404 Not Found", "there is no such revision")
        body = differences(before.text if before else "", after.text)
        return _page("200 OK", f"{name}: from revision {old} to {new}", body, name)

    def _get(self, name: str, query: dict[str, str]) -> Revision | None:
        if "revision" not in query:
            return self._storage.latest(name)
        found = self._storage.revision(name, _number(query["revision"], "revision"))
        if found is None:
            raise Refused("404 Not Found", "there is no such revision")
        return found


def refusal(environ: dict, error: Exception) -> Response:
    """The answer to a request that could not be carried out: too many conflicts, or no space."""
    # (SQLite has no number for it.)
    if getattr(error, "errno", None) in NO_SPACE or "disk is full" in str(error):
        status, words = "507 Insufficient Storage", "There is no space left for it."
    else:
        status, words = "503 Service Unavailable", "Others were changing the same, or the storage failed."
    advice = "Nothing was changed. Go back and try again; what you typed is still in the form."
    status, headers, body = _page(status, status[4:], _sentence(f"{words} {advice}"))
    return status, [*headers, ("Retry-After", "1")], body


def _route(environ: dict) -> tuple[str, str]:
    """Kind and name from the path."""
    # WSGI gives the path decoded as Latin-1.
    try:
        path = environ.get("PATH_INFO", "/").encode("latin-1").decode()
    except UnicodeError:
        raise Refused("400 Bad Request", "the path is not UTF-8") from None
    kind, _, name = path.removeprefix("/").partition("/")
    return kind, name


def _body(environ: dict) -> str:
    told = environ.get("CONTENT_LENGTH") or "0"
    if not (told.isascii() and told.isdigit()):
        raise Refused("400 Bad Request", "Content-Length is not a number")
    length = number_up_to(told, BODY_BYTES_MAX)
    if length is None:
        raise Refused("413 Content Too Large", f"a request has {BODY_BYTES_MAX} bytes at most")
    body = environ["wsgi.input"].read(length)
    if len(body) < length:
        raise Refused("400 Bad Request", "the body is shorter than Content-Length says")
    return body.decode("latin-1")


def _fields(text: str) -> dict[str, str]:
    """The fields of a form or a query, the first of each name."""
    try:
        fields = parse_qs(text, keep_blank_values=True, errors="strict", max_num_fields=20)
    except ValueError:
        raise Refused("400 Bad Request", "the form is not UTF-8, or has too many fields") from None
    return {name: values[0] for name, values in fields.items()}


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Refused("400 Bad Request", f"{what} is not the number of a revision")
    return int(text)


def _by(revision: Revision) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(revision.time))
    return f"revision {revision.number} by {html.escape(revision.author)}, {when}"


def _sentence(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def _form(name: str, base: int, text: str, author: str = "") -> str:
    return (
        f'<form method="post" action="{html.escape(page_url(name, "edit"))}" accept-charset="utf-8">'
        f'<input type="hidden" name="base" value="{base}">'
        # The first line end after the tag is not part of the text.
        f'<textarea name="text" id="text">\n{html.escape(text)}</textarea>'
        f'<p><input name="author" placeholder="your name" value="{html.escape(author)}"> '
        f'<input name="comment" placeholder="what you changed"> <button id="save">Save</button></p></form>'
    )


def _page(status: str, title: str, body: str, name: str = "", *, etag=None, search: str = "") -> Response:
    own = ""
    if name:
        own = link(name) + link(name, "edit", "Edit") + link(name, "history", "History")
    whole = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{STYLE}</style></head><body><nav><a href=\"/\">All pages</a>{own}"
        f'<form action="/search"><input name="q" value="{html.escape(search)}"> <button>Search</button></form></nav>'
        f"<h1>{html.escape(title)}</h1>{body}</body></html>\n"
    ).encode()
    headers = [*HEADERS, ("Content-Length", str(len(whole)))]
    if etag is not None:
        headers.append(("ETag", f'"{etag.number}"'))
    return status, headers, whole
