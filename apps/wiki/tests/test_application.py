"""The application on both storages, without a server."""

import io
import os
import signal
from urllib.parse import urlencode
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

from tests.place import InPlace
from wiki import application
from wiki.database import Database
from wiki.files import Files
from wiki.markup import to_html
from wiki.storage import NAME_BYTES_MAX, TEXT_BYTES_MAX


class Pages:
    """What holds with either storage."""

    def setUp(self):
        super().setUp()
        self.storage = self.make()
        self.application = application.make(self.storage)

    def ask(self, path, form=None, *, query="", method=None, **more):
        body = urlencode(form).encode() if form is not None else b""
        environ = {
            "REQUEST_METHOD": method or ("GET" if form is None else "POST"),
            "SCRIPT_NAME": "",
            "PATH_INFO": path.encode().decode("latin-1"),
            "QUERY_STRING": query,
            "wsgi.input": io.BytesIO(body),
            "CONTENT_LENGTH": str(len(body)),
            **more,
        }
        setup_testing_defaults(environ)
        told = []
        answer = validator(self.application)(environ, lambda status, headers, exc=None: told.append((status, dict(headers))))
        text = b"".join(answer).decode()
        answer.close()
        [(status, self.headers)] = told
        return int(status[:3]), text

    def save(self, name, base, text, expect=303, **more):
        status, body = self.ask(f"/edit/{name}", {"base": base, "text": text, "author": "Ada", **more})
        self.assertEqual(status, expect, body)
        return body

    def tearDown(self):
        self.assertEqual(self.storage.check(), [])
        super().tearDown()

    def test_a_page_is_written_and_read(self):
        status, body = self.ask("/page/Hello")
        self.assertEqual(status, 404)
        self.assertIn('href="/edit/Hello"', body)
        self.save("Hello", 0, "= Title =\r\n\r\nSee [[Other page|there]] & <b>.\r\n\r\n* one\r\n* two")
        self.assertEqual((self.headers["Location"], self.headers["ETag"]), ("/page/Hello", '"1"'))
        status, body = self.ask("/page/Hello")
        self.assertEqual(status, 200)
        self.assertIn("<h2>Title</h2>", body)
        self.assertIn('<a href="/page/Other%20page">there</a> &amp; &lt;b&gt;.', body)
        self.assertIn("<ul><li>one</li><li>two</li></ul>", body)
        self.assertIn("revision 1 by Ada", body)
        status, body = self.ask("/edit/Hello")
        self.assertIn('name="base" value="1"', body)
        self.assertIn("\n= Title =\n\nSee [[Other page|there]] &amp; &lt;b&gt;.", body)
        status, body = self.ask("/page/Hello", method="HEAD")
        self.assertEqual((status, body), (200, ""))

    def test_history(self):
        for base, text in enumerate(["first\nline", "second\nline", "third\nline"]):
            self.save("Page", base, text, comment=f"number {base + 1} <&>")
        status, body = self.ask("/history/Page")
        self.assertEqual(status, 200)
        places = [body.index(f"number {n} &lt;&amp;&gt;") for n in (3, 2, 1)]
        self.assertEqual(places, sorted(places))
        self.assertIn("second", self.ask("/page/Page", query="revision=2")[1])
        self.assertIn("third", self.ask("/page/Page")[1])
        status, body = self.ask("/diff/Page", query="from=1&to=3")
        self.assertIn("<del>- first</del>\n<ins>+ third</ins>\n<span>  line</span>", body)
        # An old revision is where the next one begins.
        body = self.ask("/edit/Page", query="revision=1")[1]
        self.assertIn('value="3"', body)
        self.assertIn("\nfirst", body)
        for query in ("revision=4", "revision=0"):
            self.assertEqual(self.ask("/page/Page", query=query)[0], 404)
        self.assertEqual(self.ask("/history/Nothing")[0], 404)
        self.assertEqual(self.ask("/diff/Page", query="from=3&to=9")[0], 404)

    def test_search(self):
        self.save("Cat", 0, "The cat sat on the mat, quietly.")
        self.save("Dog", 0, "The dog sat as well; überall.")
        found = lambda words: [n for n in ("Cat", "Dog") if f">{n}<" in self.ask("/search", query=urlencode({"q": words}))[1]]
        self.assertEqual(found("sat"), ["Cat", "Dog"])
        self.assertEqual(found("SAT cat"), ["Cat"])
        self.assertEqual(found("ÜBERALL"), ["Dog"])
        self.assertEqual(found("nothing"), [])
        self.assertEqual(found(""), [])
        self.save("Cat", 1, "The cat is gone.")
        self.assertEqual(found("sat"), ["Dog"])
        self.save("Cat", 2, "")
        self.assertEqual(found("cat"), [])

    def test_a_deleted_page_keeps_its_history(self):
        self.save("Page", 0, "text")
        self.save("Page", 1, "")
        status, body = self.ask("/page/Page")
        self.assertEqual(status, 404)
        self.assertIn('href="/history/Page"', body)
        self.assertNotIn("/page/Page", self.ask("/")[1])
        self.save("Page", 0, "again", expect=409)
        self.save("Page", 2, "again")
        self.assertIn("/page/Page", self.ask("/")[1])

    def test_an_edit_conflict_is_shown(self):
        self.save("Page", 0, "common\nold")
        self.save("Page", 1, "common\ntheirs", author="Bob <b>")
        body = self.save("Page", 1, "common\nmine & only", expect=409)
        self.assertIn("Edit conflict", body)
        self.assertIn("Bob &lt;b&gt; has saved revision 2", body)
        self.assertIn("<del>- theirs</del>\n<ins>+ mine &amp; only</ins>", body)
        self.assertIn('name="base" value="2"', body)
        self.assertIn("common\nmine &amp; only</textarea>", body)
        self.assertEqual(self.storage.latest("Page").text, "common\ntheirs")
        self.save("Page", 2, "common\nmine & only")
        # A page that was never there has no revision to begin with.
        self.save("New", 7, "text", expect=409)
        self.assertIsNone(self.storage.latest("New"))

    def test_names(self):
        for name in ("Grüße 🎈", "a.1", "a", "CON", "100%", "-rf", "~", "'\"&<", "x" * NAME_BYTES_MAX):
            self.save(name, 0, f"page {name}")
            self.assertEqual(self.ask(f"/page/{name}")[0], 200, name)
        self.assertEqual(len(self.storage.pages()), 9)
        bad = ("", ".", "..", ".hidden", "a/b", "../../etc/passwd", "a\0b", "a\nb", " a", "a ", "x" * (NAME_BYTES_MAX + 1))
        for name in bad:
            for kind in ("page", "history", "diff"):
                self.assertEqual(self.ask(f"/{kind}/{name}", query="from=1&to=1")[0], 400, name)
            self.save(name, 0, "text", expect=400)
        self.assertEqual(len(self.storage.pages()), 9)

    def test_bad_input(self):
        self.save("Page", 0, "text")
        self.save("Page", "x", "other", expect=400)
        self.save("Page", "-1", "other", expect=400)
        self.save("Page", "9" * 99, "other", expect=400)
        self.save("Page", 1, "nul \0", expect=400)
        self.save("Page", 1, "x" * (TEXT_BYTES_MAX + 1), expect=413)
        self.save("Page", 1, "x" * 4 * TEXT_BYTES_MAX, expect=413)
        self.save("Page", 1, "x", expect=400, **{f"f{n}": n for n in range(30)})
        form = {"base": 1, "text": "other"}
        self.assertEqual(self.ask("/edit/Page", form, CONTENT_LENGTH="1000")[0], 400)
        self.assertEqual(self.ask("/page/Page", form)[0], 405)
        self.assertEqual(self.ask("/edit/Page", form, method="DELETE")[0], 405)
        broken = {"wsgi.input": io.BytesIO(b"base=1&text=%ff"), "CONTENT_LENGTH": "15"}
        self.assertEqual(self.ask("/edit/Page", form, **broken)[0], 400)
        self.assertEqual(self.ask("/page/Page", PATH_INFO="/page/\xff")[0], 400)
        self.assertEqual(self.ask("/page/Page", query="revision=x")[0], 400)
        self.assertEqual(self.ask("/nothing")[0], 404)
        self.assertEqual(self.storage.latest("Page").number, 1)
        largest = "x" * TEXT_BYTES_MAX
        self.save("Page", 1, largest)
        self.assertEqual(self.storage.latest("Page").text, largest)

    def test_texts_come_back_as_they_are(self):
        texts = ["\n\nhead: er\n\n", "number: 9\ntime: x\n\nmore", "\u2028line\u0085s\x0c", "</textarea><script>", "\ud83d".encode("utf-16", "surrogatepass").decode("utf-16", "replace")]
        for base, text in enumerate(texts):
            self.save("Page", base, text, author="a: b\n\nc", comment="x\ny")
            latest = self.storage.latest("Page")
            self.assertEqual((latest.text, latest.author, latest.comment), (text, "a: b c", "x y"))
            self.assertNotIn("<script", self.ask("/edit/Page")[1] + self.ask("/page/Page")[1])


class OnFiles(Pages, InPlace):
    def make(self):
        return Files(self.dir)

    def test_a_save_that_is_killed_is_all_or_nothing(self):
        """At each file that a save writes; and the check sees it if it is not in a transaction."""
        self.save("Page", 0, "first words here")
        for step in range(1, 6):
            self.assertEqual(self.killed_at(step, self.storage), [], step)
            self.assertEqual(self.storage.latest("Page").text, "first words here")
        bare = Files(self.dir.parent / "bare", transactions=False)
        self.application = application.make(bare)
        self.save("Page", 0, "first words here")
        self.assertNotEqual(self.killed_at(2, bare), [])

    def killed_at(self, step, storage):
        """What a check finds after a save of one page that was killed before it wrote its so-many-th file."""
        child = os.fork()
        if child == 0:
            from wiki import files

            steps = iter(range(1, 100))

            def write(path, content, whole=files.Path.write_bytes):
                if next(steps) == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return whole(path, content)

            files.Path.write_bytes = write
            self.application = application.make(storage)
            self.save("Page", 1, "second and other things there")
            os._exit(0)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), -signal.SIGKILL)
        return storage.check()


class OnSqlite(Pages, InPlace):
    def make(self):
        return Database(self.dir)


class Markup(InPlace):
    def test_markup(self):
        self.assertEqual(to_html(""), "")
        self.assertEqual(to_html("a\nb\n\n\n c"), "<p>a\nb</p>\n<p>c</p>")
        self.assertEqual(to_html("== T ==\ntext"), "<h3>T</h3>\n<p>text</p>")
        self.assertEqual(to_html("[[a]] [[b|c]] [[d"), '<p><a href="/page/a">a</a> <a href="/page/b">c</a> [[d</p>')
        hostile = '[[" onclick=x|<i>]] [[javascript:x]]'
        self.assertEqual(
            to_html(hostile),
            '<p><a href="/page/%22%20onclick%3Dx">&lt;i&gt;</a> <a href="/page/javascript%3Ax">javascript:x</a></p>',
        )
