"""The server as a process: many people at once, kills, and requests that must not pass."""

import csv
import io
import os
import socket
import threading

import numpy as np
import pandas as pd
import pytest
from label_server import Client, made_up, serving

from pdcc.label.guard import BODY_SECONDS, LARGEST_BODY
from pdcc.label.store import Store

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360f8cfc0f01f0005000180a3f0e2c00000000049454e44ae426082"
)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Thousand rows and their texts; three images, one of them a link to a secret, and one that is none."""
    home = tmp_path_factory.mktemp("label")
    np.save(home / "x.npy", np.zeros((1000, 2)))
    np.save(home / "three.npy", np.zeros((4, 2)))
    pd.DataFrame({"item": range(1000), "text": [f"text {k}" for k in range(1000)]}).to_csv(home / "i.csv", index=False)
    (home / "images").mkdir()
    (home / "secret.png").write_bytes(PNG)
    (home / "images" / "0.png").write_bytes(PNG)
    (home / "images" / "1.png").symlink_to(home / "secret.png")
    (home / "images" / "2.png").write_text("<script>alert(1)</script>")
    (home / "images" / "3.png").symlink_to("0.png")
    return home


@pytest.fixture(scope="module")
def open_server(home):
    with serving("three.npy", "--images", "images", "--annotator", "Ann", cwd=home) as server:
        yield server


@pytest.fixture(scope="module")
def token_server(home):
    with serving("x.npy", "--items", "i.csv", "--host", "127.0.0.1", "--store", "token.sqlite", cwd=home) as server:
        yield server


WHO = {"client": "test-page", "annotator": "Ann"}


def test_five_people_answer_at_once(home):
    """A thousand answers by five, each sent again now and then: all are kept, each once, and no pair goes to two."""
    acknowledged, handed, faults = [], [], []

    def work(server, number):
        client = Client(server, f"annotator {number}")
        try:
            _, found = client.post("next")
            for k in range(200):
                ticket, kind, key = found["pair"]["ticket"], ("same", "different", "unsure")[k % 3], made_up()
                handed.append((found["pair"]["left"]["text"], found["pair"]["right"]["text"]))
                for again in range(2 if k % 10 == 0 else 1):
                    status, found = client.post("answer", ticket=ticket, answer=kind, key=key)
                    assert (status, found["progress"]["mine"]) == (200, k + 1), (again, found)
                acknowledged.append((key, kind, client.who["annotator"]))
        except BaseException as error:
            faults.append(error)
        finally:
            client.close()

    with serving("x.npy", "--items", "i.csv", "--store", "five.sqlite", cwd=home) as server:
        threads = [threading.Thread(target=work, args=(server, number)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not faults
        said = server.interrupt()
        assert server.process.returncode == 0
    assert "1000 answers are kept in" in said
    with Store(home / "five.sqlite") as store:
        kept = store.kept()
        assert sorted((a.key, a.answer, a.annotator) for a in kept) == sorted(acknowledged)
        assert {a.chosen_by for a in kept} == {"random"}
        assert all(0 < a.probability < 1e-5 for a in kept)
        pairs = {frozenset((f"text {a.i}", f"text {a.j}")) for a in kept}
    assert len(pairs) == len(kept) == 1000
    assert pairs == set(map(frozenset, handed))


def test_a_kill_amid_writes_loses_nothing_acknowledged(home):
    """Three people answer as fast as they can; the server is killed with -9 after 40 acknowledgements, twice, and goes on."""
    acknowledged = []

    def work(client, enough):
        try:
            _, found = client.post("next")
            while True:
                key = made_up()
                status, found = client.post("answer", ticket=found["pair"]["ticket"], answer="same", key=key)
                if status == 200:
                    acknowledged.append(key)
                if len(acknowledged) >= goal:
                    enough.set()
        except (OSError, ValueError, KeyError, TypeError):  # the connection broke off
            pass
        except Exception as error:
            if "HTTPException" not in [c.__name__ for c in type(error).__mro__]:
                raise
        finally:
            client.close()

    for goal in (40, 80):
        enough = threading.Event()
        with serving("x.npy", "--items", "i.csv", "--store", "killed.sqlite", cwd=home) as server:
            clients = [Client(server, f"annotator {k}") for k in range(3)]
            threads = [threading.Thread(target=work, args=(client, enough)) for client in clients]
            for thread in threads:
                thread.start()
            assert enough.wait(30)
            server.kill()
            for thread in threads:
                thread.join(30)
        with Store(home / "killed.sqlite", create=False) as store:
            kept = [a.key for a in store.kept()]
        assert len(set(kept)) == len(kept)
        assert set(acknowledged) <= set(kept)
        assert len(kept) <= len(acknowledged) + 3 * (
            goal // 40
        )  # and at most one each that was not acknowledged any more


def test_answers_undo_and_export(open_server, home):
    page = Client(open_server, "Ann")
    _, found = page.post("next")
    first, key = found["pair"], made_up()
    assert first["left"] == {"text": None, "fields": [], "image": first["left"]["image"]}
    assert page.post("answer", ticket=first["ticket"], answer="same", key=key)[1]["progress"]["mine"] == 1
    # The same key with another answer, and another key for an answered pair, keep nothing.
    assert page.post("answer", ticket=first["ticket"], answer="different", key=key)[0] == 409
    assert page.post("answer", ticket=first["ticket"], answer="same", key=made_up())[0] == 404
    status, found = page.post("undo", key=key)
    assert (status, found["progress"]["mine"], found["progress"]["undo"]) == (200, 0, None)
    assert [found["pair"][side] for side in ("left", "right")] == [first[side] for side in ("left", "right")]
    assert page.post("undo", key=key)[1]["pair"]["ticket"] == found["pair"]["ticket"]
    assert page.post("answer", ticket=found["pair"]["ticket"], answer="unsure", key=made_up())[0] == 200
    page.close()
    with Store(home / "three.answers.sqlite", create=False) as store:  # while the server has it open
        assert [a.answer for a in store.kept()] == ["unsure"]
    status, headers, content = open_server.ask("GET", "/answers.csv")
    assert (status, headers["content-type"]) == (200, "text/csv; charset=utf-8")
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    assert [(row["similar"], row["annotator"]) for row in rows] == [("unsure", "Ann")]
    assert open_server.ask("GET", "/api/session")[2] == b'{"annotator":"Ann","goal":null,"all":1}'


def test_what_is_another_annotators_stays_theirs(open_server):
    ann, bob = Client(open_server, "Ann"), Client(open_server, "Bob")
    ticket = ann.post("next")[1]["pair"]["ticket"]
    assert bob.post("answer", ticket=ticket, answer="same", key=made_up())[0] == 409
    key = made_up()
    assert ann.post("answer", ticket=ticket, answer="same", key=key)[0] == 200
    assert bob.post("undo", key=key)[0] == 404
    assert ann.post("undo", key=key)[0] == 200
    for client in (ann, bob):
        client.close()


def test_every_response_carries_the_policy(open_server):
    for method, path in [("GET", "/"), ("GET", "/page.js"), ("GET", "/nowhere"), ("POST", "/api/next"), ("PUT", "/")]:
        _, headers, _ = open_server.ask(method, path)
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none';")
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert not any(name.startswith("access-control") for name in headers)


def test_images_are_images_of_the_folder(open_server):
    status, headers, content = open_server.ask("GET", "/images/0")
    assert (status, headers["content-type"], content) == (200, "image/png", PNG)
    assert open_server.ask("GET", "/images/3")[0] == 200  # a link that stays inside
    assert open_server.ask("GET", "/images/1")[0] == 404  # one that leads out
    assert open_server.ask("GET", "/images/2")[0] == 404  # no image, whatever its name


@pytest.mark.parametrize(
    "path",
    [
        "/images/../secret.png", "/images/%2e%2e/secret.png", "/images/..%2fsecret.png", "/images/..%5csecret.png", "/images//etc/passwd",
        "/images/%2fetc%2fpasswd", "/images/0.png", "/images/0%00", "/images/0%00.png", "/images/-1", "/images/4", "/images/" + "9" * 5000,
        "/images/%d9%a0", "/images/", "/images", "/%2e%2e/%2e%2e/etc/passwd", "/../x.npy", "/page.js/../server.py", "/server.py",
        "/three.answers.sqlite", "/images/%252e%252e%252fsecret.png",
    ],
)  # fmt: skip
def test_no_path_leads_out(open_server, path):
    status, _, content = open_server.ask("GET", path)
    assert status == 404
    assert PNG not in content
    assert b"root:" not in content


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "192.168.1.5", "", "a b", "127.0.0.1:1:2", "user@localhost", "[::1", "0x7f.1"])  # fmt: skip
@pytest.mark.parametrize("path", ["/", "/api/session", "/answers.csv"])
def test_other_names_are_refused(open_server, host, path):
    assert open_server.ask("GET", path, headers={"Host": host})[0] in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9000", "[::1]:8765", "127.0.0.1"])
def test_own_names_are_answered(open_server, host):
    assert open_server.ask("GET", "/", headers={"Host": host})[0] == 200


FOREIGN = {
    "another origin": {"Origin": "http://evil.example"},
    "another port": {"Origin": "http://127.0.0.1:1"},
    "no origin to name": {"Origin": "null"},
    "a file": {"Origin": "file://"},
    "garbage": {"Origin": "http://["},
    "another site": {"Sec-Fetch-Site": "cross-site"},
    "a sister site": {"Sec-Fetch-Site": "same-site"},
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_other_sites_may_not_write_or_read(open_server, kind):
    before = open_server.ask("GET", "/api/session")[2]
    for path in ("next", "answer", "undo"):
        body = WHO | {"ticket": "x" * 16, "answer": "same", "key": made_up()}
        assert open_server.ask("POST", f"/api/{path}", body, FOREIGN[kind])[0] == 403
    assert open_server.ask("GET", "/images/0", headers=FOREIGN[kind])[0] == 403
    assert open_server.ask("GET", "/answers.csv", headers=FOREIGN[kind])[0] == 403
    assert open_server.ask("GET", "/api/session")[2] == before


def test_our_own_page_may_write(open_server):
    own = {"Origin": f"http://127.0.0.1:{open_server.port}", "Sec-Fetch-Site": "same-origin"}
    assert open_server.ask("POST", "/api/next", WHO, own)[0] == 200
    assert (
        open_server.ask("GET", "/", headers={"Sec-Fetch-Site": "cross-site"})[0] == 200
    )  # a link to the page is no harm


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx", "", None]
)
def test_only_json_is_taken(open_server, kind):
    assert open_server.ask("POST", "/api/next", WHO, {"Content-Type": kind})[0] == 415


def raw(server, request: bytes, *more: bytes) -> bytes:
    """What comes back for these bytes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=BODY_SECONDS + 20) as connection:
        connection.sendall(request)
        for part in more:
            try:
                connection.sendall(part)
            except OSError:
                break
        found = b""
        try:
            while block := connection.recv(65536):
                found += block
                if b"\r\n\r\n" in found:
                    break
        except ConnectionResetError:
            pass
        return found


HEAD = b"POST /api/next HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_large_bodies_are_refused(open_server):
    full = b'{"client": "test-page", "annotator": "Ann", "padding": "' + b"x" * LARGEST_BODY + b'"}'
    assert open_server.ask("POST", "/api/next", full[:LARGEST_BODY])[0] == 400  # as large as may be, and cut off
    # Said to be large: refused before it comes.
    assert raw(open_server, HEAD + b"Content-Length: 999999999\r\n\r\n").startswith(b"HTTP/1.1 413")
    # Not said: refused when it has become too large, though it goes on.
    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    assert raw(open_server, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 5).startswith(b"HTTP/1.1 413")
    small = b"2b\r\n" + b'{"client": "test-page", "annotator": "Ann"}' + b"\r\n0\r\n\r\n"
    assert raw(open_server, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", small).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"text"', b"\xff\xfe", b"[" * 5000, b"9" * 5000], ids=ascii
)
def test_what_is_no_json_object_is_refused(open_server, body):
    assert open_server.ask("POST", "/api/answer", body, {"Content-Type": "application/json"})[0] == 400


FIELDS = {"ticket": "x" * 16, "answer": "same", "key": "k" * 16} | WHO


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("answer", "maybe"), ("answer", None), ("answer", 1), ("answer", ["same"]), ("answer", {}), ("key", "short"), ("key", "k" * 65), ("key", 7),
        ("key", "a/../../b"), ("ticket", None), ("ticket", {}), ("client", ""), ("annotator", ""), ("annotator", "  "), ("annotator", None),
        ("annotator", "x" * 81), ("annotator", "a\u0000b"), ("annotator", "\ud800"), ("annotator", "\u202ebb"), ("annotator", ["Ann"]),
    ],
)  # fmt: skip
def test_wrong_fields_are_refused(open_server, field, value):
    assert open_server.ask("POST", "/api/answer", FIELDS | {field: value})[0] == 422


def test_a_pair_that_was_not_handed_out_is_unknown(open_server):
    assert open_server.ask("POST", "/api/answer", FIELDS)[0] == 404
    assert open_server.ask("POST", "/api/undo", FIELDS)[0] == 404
    assert open_server.ask("GET", "/api/answer")[0] == 405


def test_elsewhere_the_token_is_demanded(token_server):
    token, cookie = token_server.token[1], f"pdcc-label-{token_server.port}"
    wrong = [
        {}, {"Cookie": f"{cookie}=wrong"}, {"Cookie": f"{cookie}="}, {"Cookie": f"other={token}"}, {"Cookie": f"{cookie}={token}x"},
        {"Cookie": f"{cookie}={token[:-1]}"}, {"Cookie": ";;=;"}, {"Cookie": f"{cookie}=\xe4"}, {"Authorization": f"Bearer {token}"},
    ]  # fmt: skip
    for headers in wrong:
        for path in (
            "/",
            "/page.js",
            "/api/session",
            "/answers.csv",
            "/images/0",
            "/?token=",
            "/?token=wrong",
            "/?token=%ff",
        ):
            status, given, _ = token_server.ask("GET", path, headers=headers)
            assert status == 401
            assert "set-cookie" not in given
        assert token_server.ask("POST", "/api/next", WHO, headers)[0] == 401
    assert token_server.ask("POST", f"/api/next?token={token}", WHO)[0] == 401  # in the page's address alone
    status, headers, content = token_server.ask("GET", f"/?token={token}")
    assert status == 200
    assert token.encode() not in content
    assert headers["set-cookie"] == f"{cookie}={token}; Path=/; HttpOnly; SameSite=Strict"
    known = {"Cookie": f'bad"name=[1, 2]; {{=; {cookie}={token}; other=1'}  # others at this address set cookies too
    assert token_server.ask("GET", "/api/session", headers=known)[0] == 200
    assert token_server.ask("POST", "/api/next", WHO, known)[0] == 200
    assert token_server.ask("POST", "/api/next", WHO, known | {"Origin": "http://evil.example"})[0] == 403
    assert token_server.ask("GET", "/", headers=known | {"Host": "evil.example"})[0] == 421
    assert token_server.ask("GET", "/", headers=known | {"Host": "192.168.1.5"})[0] == 200


def test_it_listens_to_this_machine_alone(open_server):
    """The kernel's table of listening sockets names 127.0.0.1 for the port, and nothing else."""
    if not os.path.exists("/proc/net/tcp"):
        pytest.skip("needs Linux: /proc/net/tcp")
    with open("/proc/net/tcp") as file:
        entries = [line.split() for line in file.readlines()[1:]]
    places = {
        entry[1].split(":")[0]
        for entry in entries
        if entry[3] == "0A" and int(entry[1].split(":")[1], 16) == open_server.port
    }
    assert places == {"0100007F"}
