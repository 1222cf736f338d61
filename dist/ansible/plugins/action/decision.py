# Copyright (c) 2026 the TxOS contributors
# Apache-2.0 or MIT, at your option
"""The decision about a change on many hosts, in a file on the controller.

The record is replaced as a whole: written beside itself, flushed, renamed, and the directory flushed. Decisions only go
forward (nothing, commit, revert), under a lock, so two controllers of one change agree on them.
"""

import fcntl
import hashlib
import json
import os
from contextlib import contextmanager

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

FORMAT = 1


class ActionModule(ActionBase):
    """Called by the task `txos.fleet.decision`."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args = self._task.args
        path = os.path.abspath(os.path.expanduser(args["journal"]))
        step = args["step"]
        if step not in ("begin", "prepared", "committed", "end"):
            raise AnsibleActionFail("no such step: %s" % step)
        with locked(path):
            record = read(path)
            before = json.dumps(record, sort_keys=True)
            record = globals()[step](record, args)
            if json.dumps(record, sort_keys=True) != before:
                write(path, record)
                result["changed"] = True
        result.update({key: record[key] for key in ("decision", "ids", "committed", "outcome", "left")})
        if step == "end" and record["outcome"] != "committed":
            result["failed"] = True
            result["msg"] = told(record)
        return result


def begin(record, args):
    """Makes the record, or goes on with it."""
    hosts, request = sorted(args["hosts"]), digest(args.get("request"))
    if record is None:
        record = {
            "format": FORMAT,
            "hosts": hosts,
            "request": request,
            "decision": None,
            "why": {},
            "ids": {},
            "committed": [],
            "outcome": None,
            "left": {},
        }
    if record["hosts"] != hosts:
        raise AnsibleActionFail("this change was begun with other hosts: %s" % ", ".join(record["hosts"]))
    if record["request"] != request:
        raise AnsibleActionFail("this change was begun with another command; a new one needs a new name")
    if args.get("decision") == "revert" and record["outcome"] != "committed":
        record["decision"] = "revert"
        record["why"].setdefault("controller", "it was asked for")
    return record


def prepared(record, args):
    """Commits only what every host has prepared."""
    if record["decision"] is not None:
        return record
    good, bad = apart(record, args["results"])
    record["ids"] = {host: answer["id"] for host, answer in good.items()}
    record["decision"] = "revert" if bad else "commit"
    record["why"] = bad
    return record


def committed(record, args):
    """Compensates as soon as one host has not committed."""
    if record["decision"] != "commit" or record["outcome"]:
        return record
    good, bad = apart(record, args["results"])
    record["committed"] = sorted(good)
    if bad:
        record["decision"] = "revert"
        record["why"] = bad
    else:
        record["outcome"] = "committed"
    return record


def end(record, args):
    """What has become of it."""
    if record["decision"] == "revert" and record["outcome"] != "reverted":
        dummy, record["left"] = apart(record, args["results"])
        record["outcome"] = "incomplete" if record["left"] else "reverted"
    return record


def apart(record, results):
    """The hosts that did what they were to do, and why the others did not. One without an answer did not."""
    good, bad = {}, {}
    for host in record["hosts"]:
        answer = results.get(host) or {}
        if answer.get("unreachable"):
            bad[host] = "unreachable: %s" % answer.get("msg", "")
        elif answer.get("failed") or "transaction_state" not in answer:
            bad[host] = str(answer.get("msg", "no answer"))
        else:
            good[host] = answer
    return good, bad


def told(record):
    """The end, in words."""
    lines = []
    if record["outcome"] == "reverted":
        lines.append("the change is on no host: it was given up, and what had been committed is reverted")
    else:
        lines.append("the change is given up, but these hosts could not be reverted; run the playbook again")
        lines += ["  %s: %s" % item for item in sorted(record["left"].items())]
    if record["why"]:
        lines.append("it was given up because of:")
        lines += ["  %s: %s" % item for item in sorted(record["why"].items())]
    return "\n".join(lines)


def digest(request):
    text = json.dumps(request, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def locked(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read(path):
    try:
        with open(path) as file:
            record = json.load(file)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise AnsibleActionFail("%s is damaged: %s" % (path, error))
    if record.get("format") != FORMAT:
        raise AnsibleActionFail("%s is of another version of this collection" % path)
    return record


def write(path, record):
    with open(path + ".new", "w") as file:
        json.dump(record, file, indent=2, sort_keys=True)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".new", path)
    directory = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
