#!/usr/bin/python
# Copyright (c) 2026 the TxOS contributors
# Apache-2.0 or MIT, at your option
"""A TxOS transaction on a host."""

DOCUMENTATION = r"""
module: transaction
short_description: Prepare, commit or revert a TxOS transaction
description:
  - Brings the transaction of a name on a host into a state. What has been done already is not done again.
  - A transaction that is prepared has run its command, and nothing is published.
  - Needs C(txos) on the host.
author:
  - the TxOS contributors (@txos)
options:
  name:
    description: The name of the transaction. It stands for one command on this host.
    type: str
    required: true
  state:
    description:
      - With V(prepared) the command is run and its changes are kept pending, unless there is a transaction of this name.
      - With V(committed) what is pending is published.
      - With V(reverted) what is pending is discarded, and what is committed is undone.
    type: str
    required: true
    choices: [prepared, committed, reverted]
  id:
    description: The id of the transaction, where it is known. A later one of the same name is then left alone.
    type: str
  argv:
    description: The command. Needed for O(state=prepared).
    type: list
    elements: str
  scope:
    description: The directories that the transaction versions. Without it, everything.
    type: list
    elements: path
    default: []
  options:
    description: More options of C(txos run).
    type: list
    elements: str
    default: []
  skip_changed:
    description: Patterns of paths that a revert leaves as they are if others have changed them since.
    type: list
    elements: str
    default: []
  was_committed:
    description: Whether the transaction is known to have been committed. Then it can't be reverted if it is not there any more.
    type: bool
    default: false
  store:
    description: The store, as C(txos --store) has it.
    type: path
  executable:
    description: The command C(txos).
    type: str
    default: txos
  wait:
    description: For how many seconds to wait for a command of the same transaction that still runs.
    type: int
    default: 600
attributes:
  check_mode:
    support: none
    description: Nothing is done in check mode. C(txos run --dry-run) shows what a command would change.
"""

EXAMPLES = r"""
- name: Run an upgrade without publishing it
  txos.fleet.transaction:
    name: upgrade-42
    state: prepared
    argv: [apt-get, -y, upgrade]

- name: Publish it
  txos.fleet.transaction:
    name: upgrade-42
    state: committed
"""

RETURN = r"""
id:
  description: The transaction's id, if there is one.
  type: str
  returned: always
transaction_state:
  description: V(pending), V(committed), V(reverted) or V(absent).
  type: str
  returned: always
changes:
  description: The number of changed paths.
  type: int
  returned: always
conflicts:
  description: What others have changed, where that is why it failed.
  type: list
  elements: dict
  returned: always
"""

import fcntl
import hashlib
import json
import os
import tempfile
import time

from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "required": True, "choices": ["prepared", "committed", "reverted"]},
            "id": {"type": "str"},
            "argv": {"type": "list", "elements": "str"},
            "scope": {"type": "list", "elements": "path", "default": []},
            "options": {"type": "list", "elements": "str", "default": []},
            "skip_changed": {"type": "list", "elements": "str", "default": []},
            "was_committed": {"type": "bool", "default": False},
            "store": {"type": "path"},
            "executable": {"type": "str", "default": "txos"},
            "wait": {"type": "int", "default": 600},
        },
        required_if=[("state", "prepared", ["argv"])],
    )
    Host(module).bring_to(module.params["state"])


class Host:
    """The transaction on this host, and the ways from one of its states to another."""

    def __init__(self, module):
        self.module = module
        self.params = module.params
        self.txos = [self.params["executable"]]
        if self.params["store"]:
            self.txos += ["--store", self.params["store"]]
        self.conflicts = []
        self.lock = None

    def bring_to(self, state):
        self.take_lock()
        # What was interrupted is committed or pending after that, and nothing in between.
        self.run(["recover", "--quiet"], must=True)
        now = self.look()
        deadline = time.monotonic() + self.params["wait"]
        while now and now["state"] == "active" and time.monotonic() < deadline:
            # The command of a controller that is gone.
            time.sleep(0.2)
            now = self.look()
        if now and now["state"] == "active":
            self.fail(now, "a command of this transaction still runs")
        changed = getattr(self, "to_" + state)(now)
        now = self.look()
        self.module.exit_json(changed=changed, **self.told(now))

    def to_prepared(self, now):
        if now and now["state"] in ("pending", "committed"):
            return False
        if now and now["state"] == "reverted":
            self.fail(now, "this name has been used: that transaction was committed and reverted")
        if now:
            # A command that was killed has published nothing.
            self.act(["gc", "--force", now["id"]], now, "what a killed command left could not be removed")
        words = ["run", "--keep", "--name", self.params["name"]]
        for scope in self.params["scope"]:
            words += ["--scope", scope]
        words += self.params["options"] + ["--"] + self.params["argv"]
        self.act(words, now, "the command failed, and nothing is published")
        return True

    def to_committed(self, now):
        if not now:
            self.fail(now, "there is no such transaction to commit")
        if now["state"] == "committed":
            return False
        if now["state"] != "pending":
            self.fail(now, "it can't be committed, because it is %s" % now["state"])
        self.act(["commit", now["id"]], now, "it could not be committed, and is still pending")
        return True

    def to_reverted(self, now):
        if not now and self.params["was_committed"]:
            self.fail(now, "it was committed, and is not in the history any more: it can't be reverted")
        if not now or now["state"] == "reverted":
            return False
        if now["state"] == "committed":
            words = ["revert", now["id"]]
            words += ["--skip-changed=" + pattern for pattern in self.params["skip_changed"]]
            self.act(words, now, "it could not be reverted, and is still committed")
        else:
            # What a killed process left is taken away like what is pending.
            words = ["abort", now["id"]] if now["state"] == "pending" else ["gc", "--force", now["id"]]
            self.act(words, now, "it could not be discarded")
        return True

    def act(self, words, now, otherwise):
        """A command of txos that changes something, with its report."""
        handle, path = tempfile.mkstemp(dir=self.module.tmpdir)
        os.close(handle)
        if words[0] in ("run", "commit", "revert"):
            words = [words[0], "--report", path] + words[1:]
        status, dummy, err = self.run(words)
        if status != 0:
            with open(path) as report:
                text = report.read()
            try:
                self.conflicts = json.loads(text)["conflicts"]
            except (ValueError, KeyError):
                pass
            self.fail(self.look() or now, "%s: %s" % (otherwise, err.strip() or "status %d" % status))

    def look(self):
        """What txos knows of it: None where there is nothing."""
        which = self.params["id"] or self.params["name"]
        for words in (["list"], ["log"]):
            dummy, out, err = self.run(words + ["--json"], must=True)
            known = json.loads(out)["transactions"]
            # The newest is the first.
            for one in known:
                if which in (one["id"], one["name"]):
                    return one
        return None

    def take_lock(self):
        """Held to the end of this process: a task of a controller that was killed may still run."""
        where = os.path.expanduser("~/.ansible/txos-fleet")
        os.makedirs(where, 0o700, exist_ok=True)
        key = "%s\0%s" % (self.params["name"], self.params["store"] or "")
        name = hashlib.sha256(key.encode()).hexdigest()[:32]
        self.lock = open(os.path.join(where, name), "w")
        deadline = time.monotonic() + self.params["wait"]
        while True:
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if time.monotonic() > deadline:
                    self.fail(None, "another task works on this transaction")
                time.sleep(0.2)

    def run(self, words, must=False):
        status, out, err = self.module.run_command(self.txos + words)
        if must and status != 0:
            self.fail(None, "%s: %s" % (" ".join(self.txos + words), err.strip()))
        return status, out, err

    def told(self, now):
        return {
            "id": now["id"] if now else None,
            "transaction_state": now["state"] if now else "absent",
            "changes": (now["changes"] or 0) if now else 0,
            "conflicts": self.conflicts,
        }

    def fail(self, now, message):
        self.module.fail_json(msg=message, **self.told(now))


if __name__ == "__main__":
    main()
