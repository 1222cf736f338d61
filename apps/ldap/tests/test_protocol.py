"""What slapd answers with its files in transactions is what it answers on LMDB."""

import contextlib
import socket

from directory.client import ADD, BASE, DELETE, ONE, REPLACE, SUBTREE, add, delete, modify, rename, search
from directory.server import PEOPLE, SUFFIX, attributes, person
from tests.place import InPlace

#: Of each entry, what does not depend on when it was made.
IGNORED = ("entryUUID", "entryCSN", "createTimestamp", "modifyTimestamp")


class Answers(InPlace):
    def setUp(self):
        super().setUp()
        self.servers = [self.server(kind, people=3) for kind in ("txos", "mdb")]
        self.clients = [server.client() for server in self.servers]
        for client in self.clients:
            self.addCleanup(client.close)

    def both(self, request, code):
        """Both answer with this code, and have the same entries afterwards."""
        self.assertEqual([client.ask(request) for client in self.clients], [code, code])
        trees = [client.entries(SUFFIX) for client in self.clients]
        self.assertEqual(trees[0], trees[1])
        return trees[0]

    def test_add_and_delete(self):
        self.both(add(person("x"), attributes("x")), 0)
        self.both(add(person("x"), attributes("x", "another")), 68)
        self.both(add(person("y", f"ou=nowhere,{SUFFIX}"), attributes("y")), 32)
        self.both(add(person("z"), {"objectClass": ["person"], "cn": ["person z"]}), 65)
        self.both(add(f"cn=below,{person('x')}", attributes("below")), 0)
        self.both(delete(person("x")), 66)
        self.both(delete(f"cn=below,{person('x')}"), 0)
        self.both(delete(person("x")), 0)
        self.both(delete(person("x")), 32)
        hostile = "cn=../../a\\2Fb\\, c,"
        self.both(add(hostile + PEOPLE, {"objectClass": ["person"], "cn": ["../../a/b, c"], "sn": ["s"]}), 0)

    def test_several_changes_of_one_modify_are_all_or_nothing(self):
        tree = self.both(modify(person(1), [(REPLACE, "sn", ["New"]), (ADD, "description", ["one", "two"])]), 0)
        self.assertEqual(tree[person(1)]["sn"], ["New"])
        # The last of three can't be done.
        changes = [(REPLACE, "sn", ["Lost"]), (DELETE, "description", ["one"]), (DELETE, "description", ["three"])]
        tree = self.both(modify(person(1), changes), 16)
        self.assertEqual(tree[person(1)]["sn"], ["New"])
        self.both(modify(person(1), [(DELETE, "sn", [])]), 65)
        self.both(modify(person(9), [(REPLACE, "sn", ["New"])]), 32)

    def test_a_subtree_is_renamed_and_moved(self):
        self.both(add(f"ou=old,{SUFFIX}", {"objectClass": ["organizationalUnit"], "ou": ["old"]}), 0)
        tree = self.both(rename(PEOPLE, "ou=folk"), 0)
        self.assertIn(person(1, f"ou=folk,{SUFFIX}"), tree)
        self.assertNotIn(person(1), tree)
        tree = self.both(rename(f"ou=folk,{SUFFIX}", "ou=folk", f"ou=old,{SUFFIX}"), 0)
        self.assertIn(person(2, f"ou=folk,ou=old,{SUFFIX}"), tree)
        self.both(rename(f"ou=nothing,{SUFFIX}", "ou=x"), 32)
        self.both(rename(f"ou=folk,ou=old,{SUFFIX}", "ou=people", SUFFIX), 0)
        self.both(rename(person(1), "cn=person 2"), 68)

    def test_scopes(self):
        for scope, found in ((BASE, 1), (ONE, 3), (SUBTREE, 4)):
            for client in self.clients:
                self.assertEqual(client.count(search(PEOPLE, scope)), (0, found))
        self.assertEqual([client.count(search(person(9))) for client in self.clients], [(32, 0)] * 2)

    def test_what_is_no_request(self):
        for server, client in zip(self.servers, self.clients):
            for broken in (b"GET / HTTP/1.0\r\n\r\n", b"\x30\x84\x7f\xff\xff\xff", b"\x30\x03\x02\x01", b"\0" * 100):
                with server.client(bound=False) as other:
                    other._socket.sendall(broken)
                    other._socket.shutdown(socket.SHUT_WR)
                    with contextlib.suppress(ConnectionError):
                        while other._socket.recv(4096):
                            pass
            self.assertEqual(client.ask(add("no name", attributes(1))), 34)
            self.assertEqual(client.ask(search(person(1))), 0)
        with self.servers[0].client(bound=False) as stranger:
            self.assertEqual(stranger.ask(delete(person(1))), 8)
        self.assertEqual(self.servers[0].stop(), 0)
        self.expect_whole(self.servers[0])
