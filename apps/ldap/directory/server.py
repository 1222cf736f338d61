"""A slapd with a configuration and a database of its own. What `apps/ldap/build` has built is used."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from .client import SUCCESS, Client, add

SUFFIX = "dc=example"
ROOT, PASSWORD = f"cn=root,{SUFFIX}", "secret"
PEOPLE = f"ou=people,{SUFFIX}"
#: How long a server may take until it answers, in seconds.
START_WAIT_S = 60

#: Which program and which backend: flat files in transactions, flat files as they are, and LMDB.
KINDS = {"txos": ("slapd", "ldif"), "ldif": ("slapd-stock", "ldif"), "mdb": ("slapd-stock", "mdb")}


def built() -> Path:
    """Where `apps/ldap/build` has put what it built."""
    return Path(os.environ["TXOS_LDAP"])


class Server:
    """A slapd in a directory; several of kind `txos` may share a database. The directory's path is short: a
    socket lies in it."""

    def __init__(self, directory: Path, kind: str = "txos", *, data: Path | None = None) -> None:
        self.directory, self.kind = directory, kind
        self.data = data or directory / "data"
        self.socket = directory / "socket"
        self._process: subprocess.Popen | None = None
        for path in (directory, self.data):
            path.mkdir(parents=True, exist_ok=True)
        program, backend = KINDS[kind]
        self._program = built() / program
        lines = [
            f"include {built()}/schema/core.schema",
            f"pidfile {directory}/pid",
            "threads 16",
            # The load speaks no security layer; LDAPI counts as local.
            f"database {backend}",
            f'suffix "{SUFFIX}"',
            f'rootdn "{ROOT}"',
            f"rootpw {PASSWORD}",
            f"directory {self.data}",
            *(["maxsize 1073741824"] if backend == "mdb" else []),
        ]
        (directory / "slapd.conf").write_text("\n".join(lines) + "\n")

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> Server:
        url = "ldapi://" + str(self.socket).replace("/", "%2F")
        command = [self._program, "-f", self.directory / "slapd.conf", "-h", url, "-d", "0"]
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.monotonic() + START_WAIT_S
        while True:
            try:
                self.client().close()
                return self
            except (OSError, RuntimeError):
                if self._process.poll() is not None or time.monotonic() > until:
                    self.kill()
                    raise RuntimeError(f"slapd does not answer: {(self.directory / 'log').read_text()}") from None
                time.sleep(0.01)

    def client(self, *, bound: bool = True) -> Client:
        return Client(self.socket, *((ROOT, PASSWORD) if bound else ()))

    def stop(self) -> int:
        """Ends it as an administrator does; gives its exit status."""
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        status = self._process.wait(60)
        self._process = None
        return status

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            # A new one binds it again.
            self.socket.unlink(missing_ok=True)

    def fill(self, people: int = 0) -> None:
        """The suffix, a place for people, and so many of them."""
        with self.client() as client:
            requests = [
                add(SUFFIX, {"objectClass": ["dcObject", "organization"], "dc": ["example"], "o": ["Example"]}),
                add(PEOPLE, {"objectClass": ["organizationalUnit"], "ou": ["people"]}),
                *(add(person(n), attributes(n)) for n in range(people)),
            ]
            for request in requests:
                if (code := client.ask(request)) != SUCCESS:
                    raise RuntimeError(f"add: {code}")

    def cpu_s(self) -> float:
        """Processor time that it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def person(number: int | str, place: str = PEOPLE) -> str:
    return f"cn=person {number},{place}"


def attributes(number: int | str, note: str = "a note") -> dict[str, list[str]]:
    return {
        "objectClass": ["person"],
        "cn": [f"person {number}"],
        "sn": ["Person"],
        "telephoneNumber": ["+1 555 0100"],
        "description": [note],
    }
