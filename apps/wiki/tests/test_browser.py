"""Two people edit a page in a real browser, headless."""

import base64
import json
import os
import shutil
import subprocess
import unittest

from tests.place import InPlace

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """Chromium, by its debugging pipe: commands and events are JSON, each with a NUL behind it."""

    def __init__(self, profile):
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()

        def pipes():
            # The browser reads from 3 and writes to 4.
            high = (os.dup2(to_browser, 100), os.dup2(from_browser, 101))
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self._process = subprocess.Popen(
            [
                BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--no-proxy-server", f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank",
            ],
            preexec_fn=pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(profile)},
        )
        os.close(to_browser)
        os.close(from_browser)
        self._stream = os.fdopen(self._from, "rb")
        self._rest, self._count, self._events = b"", 0, []

    def _receive(self):
        while b"\0" not in self._rest:
            part = self._stream.read1(65536)
            if not part:
                raise EOFError("the browser has ended")
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def call(self, method, session=None, **parameters):
        self._count += 1
        asked = {"id": self._count, "method": method, "params": parameters}
        if session:
            asked["sessionId"] = session
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        while True:
            message = self._receive()
            if message.get("id") == self._count:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self._events.append(message)

    def wait(self, session, event):
        """Until an event of this session has come since the last look."""
        while True:
            for at, message in enumerate(self._events):
                if (message.get("method"), message.get("sessionId")) == (event, session):
                    del self._events[at]
                    return
            self._events.append(self._receive())

    def close(self):
        self.call("Browser.close")
        self._process.wait(60)
        os.close(self._to)
        self._stream.close()


class Tab:
    def __init__(self, browser, url):
        self._browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        browser.call("Page.enable", self._session)
        self._go("Page.navigate", url=url)

    def _go(self, method, **parameters):
        """Does what leads to another page, and waits until that is loaded."""
        self._browser._events.clear()
        self._browser.call(method, self._session, **parameters)
        self._browser.wait(self._session, "Page.loadEventFired")

    def js(self, expression):
        answer = self._browser.call("Runtime.evaluate", self._session, expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def type(self, text):
        self.js("document.getElementById('text').select()")
        self._browser.call("Input.insertText", self._session, text=text)

    def save(self):
        self._go("Runtime.evaluate", expression="document.getElementById('save').click()")

    def picture(self):
        return base64.b64decode(self._browser.call("Page.captureScreenshot", self._session)["data"])


@unittest.skipUnless(BROWSER, "no chromium")
class Editing(InPlace):
    def test_an_edit_conflict_is_shown_and_resolved(self):
        client = self.start()
        client.save("Tea", 0, "Boil water.\nAdd tea.")
        browser = Browser(self.dir.parent / "profile")
        self.addCleanup(browser.close)
        ada, bob = (Tab(browser, f"{client.url}edit/Tea") for _ in range(2))
        self.assertEqual(ada.js("document.getElementById('text').value"), "Boil water.\nAdd tea.")
        bob.type("Boil water.\nAdd green tea.")
        bob.save()
        self.assertEqual(bob.js("location.pathname"), "/page/Tea")
        self.assertIn("Add green tea.", bob.js("document.querySelector('main').innerText"))
        ada.type("Boil water.\nAdd tea & <milk>.")
        ada.save()
        self.assertEqual(ada.js("document.title"), "Edit conflict: Tea")
        conflict = "document.getElementById('conflict')"
        self.assertIn("has saved revision 2", ada.js(f"{conflict}.innerText"))
        self.assertEqual(ada.js(f"{conflict}.querySelector('del').innerText"), "- Add green tea.")
        self.assertEqual(ada.js(f"{conflict}.querySelector('ins').innerText"), "+ Add tea & <milk>.")
        self.assertGreater(ada.js(f"{conflict}.offsetHeight"), 0)
        # What was typed is still in the form, and can be saved now.
        self.assertEqual(ada.js("document.getElementById('text').value"), "Boil water.\nAdd tea & <milk>.")
        if shown := os.environ.get("TXOS_TEST_PICTURE"):
            with open(shown, "wb") as file:
                file.write(ada.picture())
        ada.type("Boil water.\nAdd green tea & <milk>.")
        ada.save()
        self.assertEqual(ada.js("location.pathname"), "/page/Tea")
        self.assertIn("revision 3", ada.js("document.body.innerText"))
        self.assertIn("Add green tea & <milk>.", ada.js("document.querySelector('main').innerText"))
        self.assertEqual(ada.js("document.querySelectorAll('milk').length"), 0)
        self.expect_sound()
