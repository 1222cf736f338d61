"""A user's maildir, and IMAP sessions on it. What `apps/mail/build` has unpacked and built is used."""

from __future__ import annotations

import imaplib
import os
import shutil
import signal
import subprocess
from pathlib import Path

#: Debian's imap with its locks; the same in transactions; the same with neither.
KINDS = ("locks", "txos", "unprotected")
#: Dovecot does not serve root. Root has it run as this user, `nobody`.
USER = 65534

def built() -> Path:
    """Where `apps/mail/build` has put what it built."""
    return Path(os.environ["TXOS_MAIL"])


class Mail:
    """A directory with a configuration and a maildir.

    ``durable``: what is acknowledged survives a power cut. ``index_on_disk``: Dovecot's default, with locks only.
    """

    def __init__(self, directory: Path, kind: str = "txos", *, durable: bool = False, index_on_disk: bool = False) -> None:
        self.directory, self.kind = directory, kind
        self.maildir = directory / "Maildir"
        self.log = directory / "log"
        top = built()
        for path in (directory, directory / "base", directory / "store", directory / "realm"):
            path.mkdir(parents=True, exist_ok=True)
            if os.geteuid() == 0:
                os.chown(path, USER, USER)
        (directory / "dovecot.conf").write_text(
            f"base_dir = {directory}/base\n"
            f"mail_location = maildir:{self.maildir}{'' if index_on_disk else ':INDEX=MEMORY'}\n"
            f"mail_plugin_dir = {top}/modules\n"
            f"mail_fsync = {'optimized' if durable and kind == 'locks' else 'never'}\n"
            "mailbox_list_index = no\n"
            "ssl = no\n"
            "default_internal_user = root\ndefault_login_user = root\n"
            "log_path = /dev/stderr\n"
        )
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "USER": "user",
            "LD_LIBRARY_PATH": f"{top}/lib",
            "TXOS_STORE": str(directory / "store"),
            "TXOS_REALM": str(directory / "realm"),
        }
        as_user = []
        if os.geteuid() == 0:
            as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        preload = []
        if kind != "locks":
            preload = ["env", f"LD_PRELOAD={top}/libtxos.so:{top}/maildir_tx.so"]
            if durable:
                self.environment["MAILDIR_TX_DURABLE"] = "1"
            if kind == "unprotected":
                self.environment["MAILDIR_TX_UNPROTECTED"] = "1"
        conf = ["-c", str(directory / "dovecot.conf"), "-f", "service=imap", "-e"]
        self.command = [*as_user, f"{top}/bin/doveconf", *conf, *preload, f"{top}/bin/imap"]

    def session(self) -> Session:
        return Session(self)

    def errors(self) -> list[str]:
        """What Dovecot and the library have complained of."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return [line for line in lines if ": Info: " not in line]

    def fill(self, count: int) -> None:
        """So many messages, made before a server looks."""
        for part in ("cur", "new", "tmp"):
            (self.maildir / part).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            path = self.maildir / "cur" / f"1700000000.M{number:06}P1.host:2,"
            path.write_bytes(message(f"old {number}"))
        # (Dovecot looks again and again at a directory that has just changed.)
        for part in ("cur", "new"):
            os.utime(self.maildir / part, (1700000000, 1700000000))
        if os.geteuid() == 0:
            for path in (self.maildir, *self.maildir.rglob("*")):
                os.chown(path, USER, USER)

    def remove(self) -> None:
        shutil.rmtree(self.directory)


class Session(imaplib.IMAP4_stream):
    """An imap process of its own behind two pipes. The user is known already (PREAUTH)."""

    def __init__(self, mail: Mail) -> None:
        self.mail = mail
        super().__init__("")

    def open(self, host=None, port=None, timeout=None) -> None:
        # (A transaction would take part of a file that it writes its messages to.)
        with open(self.mail.log, "ab") as log:
            self._logger = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log)
        self.process = subprocess.Popen(
            self.mail.command,
            env=self.mail.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._logger.stdin,
        )
        self._logger.stdin.close()
        self.host = self.port = self.sock = self.file = None
        self.writefile, self.readfile = self.process.stdin, self.process.stdout

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """Ends the process as a crash does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for stream in (self.writefile, self.readfile):
            try:
                stream.close()
            except BrokenPipeError:
                pass
        self._logger.wait()

    def shutdown(self) -> None:
        super().shutdown()
        self._logger.wait()

    def cpu_s(self) -> float:
        """Processor time that the process has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    # What has to succeed.

    def ask(self, command: str, *arguments):
        """The data of an answer, which has to be OK."""
        kind, data = getattr(self, command)(*arguments)
        if kind != "OK":
            raise RuntimeError(f"{command}{arguments}: {kind} {data}")
        return data

    def put(self, name: str) -> int:
        """Appends a message to INBOX; gives its UID."""
        answer = self.ask("append", "INBOX", "", "", message(name))
        return int(answer[0].split(b"APPENDUID", 1)[1].split(b"]")[0].split()[1])

    def mark(self, uid: int, flag: str) -> None:
        self.ask("uid", "STORE", str(uid), "+FLAGS.SILENT", f"({flag})")

    def take(self, uid: int) -> None:
        """Deletes a message."""
        self.mark(uid, "\\Deleted")
        self.ask("uid", "EXPUNGE", str(uid))

    def move(self, uid: int, to: str) -> None:
        self.ask("uid", "MOVE", str(uid), to)

    def messages(self, box: str = "INBOX") -> dict[int, tuple[str, set[str]]]:
        """The name and the flags of each message there is now, by UID."""
        self.ask("select", box)
        found = {}
        for part in self.ask("uid", "FETCH", "1:*", "(UID FLAGS BODY.PEEK[HEADER.FIELDS (SUBJECT)])"):
            if isinstance(part, tuple):
                about = part[0].decode()
                uid = int(about.split("UID ", 1)[1].split()[0].rstrip(")"))
                flags = set(about.split("FLAGS (", 1)[1].split(")")[0].split())
                found[uid] = (part[1].decode().split("Subject: ", 1)[1].strip(), flags - {"\\Recent"})
        return found


def message(name: str) -> bytes:
    return f"From: someone@example.org\r\nSubject: {name}\r\n\r\nThis is {name}.\r\n".encode()
