# Copyright (c) 2026 the TxOS contributors
# Apache-2.0 or MIT, at your option
"""The documentation of the action plugin of this name."""

DOCUMENTATION = r"""
module: decision
short_description: Record on the controller what is to become of a change on many hosts
description:
  - The record is one file for each change. It is flushed to the disk before the decision is carried out anywhere, so
    that a controller that is started again goes on with what was decided.
  - It runs on the controller and connects to no host. Use it with C(run_once).
author:
  - the TxOS contributors (@txos)
options:
  journal:
    description: The file.
    type: path
    required: true
  step:
    description:
      - V(begin) makes the record, or reads it. It is refused if hosts or command are others than recorded.
      - V(prepared) decides, if nothing is decided yet. It is V(commit) if all hosts are prepared.
      - V(committed) decides for V(revert) if not all have been committed.
      - V(end) records what has become of it, and fails if that is not V(committed).
    type: str
    required: true
    choices: [begin, prepared, committed, end]
  hosts:
    description: All hosts of the change.
    type: list
    elements: str
    required: true
  request:
    description: What is to be done on them.
    type: raw
  results:
    description: For each host what the module transaction answered.
    type: dict
  decision:
    description: V(revert) gives the change up, whatever has been recorded, unless all hosts have committed.
    type: str
    choices: [revert]
attributes:
  check_mode:
    support: none
    description: Nothing is recorded in check mode.
"""

EXAMPLES = r"""
- name: Decide
  txos.fleet.decision:
    journal: fleet/upgrade-42.json
    step: prepared
    hosts: "{{ ansible_play_hosts_all }}"
    results: "{{ prepared_by_host }}"
  run_once: true
"""

RETURN = r"""
decision:
  description: V(commit) or V(revert), or nothing yet.
  type: str
  returned: always
ids:
  description: The transaction's id for each host that has one.
  type: dict
  returned: always
committed:
  description: The hosts that are known to have committed.
  type: list
  elements: str
  returned: always
outcome:
  description: V(committed), V(reverted), or V(incomplete) if something is left to do. Nothing before the end.
  type: str
  returned: always
left:
  description: The hosts that could not be reverted, each with the reason.
  type: dict
  returned: always
"""
