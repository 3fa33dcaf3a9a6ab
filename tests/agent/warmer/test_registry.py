"""What a registry is asked, who is shown a password, and what its answers mean; real HTTP servers on loopback."""

import base64
import hashlib
import json

import pytest

from agent.core import warmmanifest, warmref
from agent.model.warm import Reason
from agent.warmer.client import CallFailed
from agent.warmer.registry import Registry, RegistryFailed
from tests.agent.warmer.webserver import Server, reply, trust

USER = ("robot", "s3cret")
BASIC = "Basic " + base64.b64encode(b"robot:s3cret").decode()
DATA = b"0123456789" * 100
TEXT = "x" * 250 + '"https://s3/x?sig=s3cret": ' + "y" * 5000
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"


@pytest.fixture
def server():
    made = []

    def start():
        made.append(Server())
        return made[-1]

    yield start
    for each in made:
        each.stop()


@pytest.fixture
def registry(tmp_path):
    return Registry(tmp_path, timeout_seconds=5)


def image(host):
    return warmref.parse(f"{host}/ml/app:v1")


def manifest(handler):
    reply(handler, 200, DATA, Docker_Content_Digest=DIGEST, Content_Type="application/vnd.oci.image.manifest.v1+json")


def test_a_token_is_fetched_with_the_password_and_used_again(server, registry, tmp_path):
    own, tokens = server(), server()
    trust(tmp_path, own.address)
    tokens.routes["/token"] = lambda handler: reply(
        handler, 200, json.dumps({"token": "t0", "expires_in": 300}).encode()
    )
    challenge = f'Bearer realm="http://{tokens.address}/token",service="reg",scope="repository:ml/app:pull"'

    def guarded(handler):
        if handler.headers.get("Authorization") == "Bearer t0":
            manifest(handler)
        else:
            reply(handler, 401, WWW_Authenticate=challenge)

    own.routes["/v2/ml/app/manifests/"] = guarded
    assert registry.resolve(image(own.address), USER).digest == DIGEST
    assert registry.resolve(image(own.address), USER).digest == DIGEST
    assert [(path, proof) for _, path, proof in tokens.seen] == [
        ("/token?service=reg&scope=repository%3Aml%2Fapp%3Apull", BASIC)
    ]
    assert [proof for _, _, proof in own.seen] == ["", "Bearer t0", "Bearer t0"]


def test_a_token_is_nobodys_but_who_showed_the_same_password(server, registry, tmp_path):
    """Two tenants of one cloud registry have the same user name, `_json_key`."""
    own, tokens = server(), server()
    trust(tmp_path, own.address)
    right, wrong = ("_json_key", "right"), ("_json_key", "wrong")
    proof = "Basic " + base64.b64encode(b"_json_key:right").decode()

    def token(handler):
        if handler.headers.get("Authorization") == proof:
            reply(handler, 200, json.dumps({"token": "t0"}).encode())
        else:
            reply(handler, 401)

    def guarded(handler):
        if handler.headers.get("Authorization") == "Bearer t0":
            manifest(handler)
        else:
            reply(handler, 401, WWW_Authenticate=f'Bearer realm="http://{tokens.address}/token"')

    tokens.routes["/token"], own.routes["/v2/ml/app/manifests/"] = token, guarded
    assert registry.resolve(image(own.address), right).digest == DIGEST
    with pytest.raises(RegistryFailed) as raised:
        registry.resolve(image(own.address), wrong)
    assert raised.value.reason is Reason.UNAUTHORIZED
    assert registry.resolve(image(own.address), right).digest == DIGEST
    assert [shown for _, _, shown in tokens.seen].count(proof) == 1


def test_where_a_blob_is_redirected_to_learns_no_proof(server, registry, tmp_path):
    own, store = server(), server()
    trust(tmp_path, own.address)
    store.routes["/blob"] = lambda handler: reply(handler, 200, DATA)

    def guarded(handler):
        if handler.headers.get("Authorization") == BASIC:
            reply(handler, 307, Location=f"http://{store.address}/blob?signed")
        else:
            reply(handler, 401, WWW_Authenticate='Basic realm="x"')

    own.routes["/v2/ml/app/blobs/"] = guarded
    assert registry.read(image(own.address), DIGEST, USER, is_manifest=False) == DATA
    assert [proof for _, _, proof in store.seen] == [""]


def test_a_mirror_is_asked_first_and_never_shown_a_password(server, registry, tmp_path):
    own, mirror = server(), server()
    trust(tmp_path, own.address, mirror.address)
    mirror.routes["/v2/ml/app/manifests/"] = lambda handler: reply(handler, 401, WWW_Authenticate='Basic realm="x"')
    own.routes["/v2/ml/app/manifests/"] = lambda handler: (
        manifest(handler)
        if handler.headers.get("Authorization")
        else reply(handler, 401, WWW_Authenticate='Basic realm="x"')
    )
    assert registry.resolve(image(own.address), USER).digest == DIGEST
    assert [(path, proof) for _, path, proof in mirror.seen] == [(f"/v2/ml/app/manifests/v1?ns={own.address}", "")]


def test_a_mirror_that_serves_other_bytes_is_passed_over(server, registry, tmp_path):
    own, mirror = server(), server()
    trust(tmp_path, own.address, mirror.address)
    mirror.routes["/v2/"] = lambda handler: reply(handler, 200, b"other bytes")
    own.routes["/v2/"] = lambda handler: reply(handler, 200, DATA)
    assert registry.read(image(own.address), DIGEST, None, is_manifest=False) == DATA


@pytest.mark.parametrize(
    ("status", "headers", "reason", "after"),
    [
        (429, {"Retry_After": "120"}, Reason.TOO_MANY_REQUESTS, 120),
        (429, {"Retry_After": "999999"}, Reason.TOO_MANY_REQUESTS, 3600),
        (429, {"Retry_After": "Wed, 21 Oct 2026 07:28:00 GMT"}, Reason.TOO_MANY_REQUESTS, 0),
        (404, {}, Reason.NOT_FOUND, 0),
        (403, {}, Reason.UNAUTHORIZED, 0),
        (503, {}, Reason.REGISTRY_UNREACHABLE, 0),
        (418, {}, Reason.PULL_FAILED, 0),
    ],
)
def test_answers_mean_what_they_mean(server, registry, tmp_path, status, headers, reason, after):
    own = server()
    trust(tmp_path, own.address)
    own.routes["/v2/"] = lambda handler: reply(handler, status, **headers)
    with pytest.raises(RegistryFailed) as raised:
        registry.resolve(image(own.address), None)
    assert (raised.value.reason, raised.value.retry_after) == (reason, after)


def test_a_registry_that_wants_a_password_and_gets_none(server, registry, tmp_path):
    own = server()
    trust(tmp_path, own.address)
    own.routes["/v2/"] = lambda handler: reply(handler, 401, WWW_Authenticate='Basic realm="x"')
    for proof in (None, USER):
        with pytest.raises(RegistryFailed) as raised:
            registry.resolve(image(own.address), proof)
        assert raised.value.reason is Reason.UNAUTHORIZED
        assert "s3cret" not in str(raised.value)


def test_a_circle_of_redirects_ends(server, registry, tmp_path):
    own = server()
    trust(tmp_path, own.address)
    own.routes["/"] = lambda handler: reply(handler, 307, Location=f"http://{own.address}/again")
    with pytest.raises(RegistryFailed, match="redirects for ever"):
        registry.resolve(image(own.address), None)


def test_a_registry_without_ranges_still_goes_on_from_an_offset(server, registry, tmp_path):
    own = server()
    trust(tmp_path, own.address)
    own.routes["/v2/"] = lambda handler: reply(handler, 200, DATA)
    blob = registry.open(image(own.address), DIGEST, 990, None)
    assert blob.read(100) == DATA[990:]
    blob.close()


def test_nobody_listens(server, registry, tmp_path):
    own = server()
    trust(tmp_path, own.address)
    own.stop()
    with pytest.raises(RegistryFailed) as raised:
        registry.resolve(image(own.address), None)
    assert raised.value.reason is Reason.REGISTRY_UNREACHABLE


@pytest.mark.parametrize(
    "url", ["ftp://127.0.0.1/x", "http://", "http://[::1", "file:///etc/passwd", "http://h:notaport/x", ""]
)
def test_a_redirect_to_nowhere_is_a_registry_at_fault(server, registry, tmp_path, url):
    own = server()
    trust(tmp_path, own.address)
    own.routes["/v2/"] = lambda handler: reply(handler, 307, Location=url)
    with pytest.raises(RegistryFailed) as raised:
        registry.resolve(image(own.address), None)
    assert raised.value.reason is Reason.REGISTRY_UNREACHABLE


@pytest.mark.parametrize("realm", ["http://[::1", "", "file:///etc/passwd"])
def test_a_challenge_that_leads_to_nowhere_is_a_registry_at_fault(server, registry, tmp_path, realm):
    own = server()
    trust(tmp_path, own.address)
    own.routes["/v2/"] = lambda handler: reply(handler, 401, WWW_Authenticate=f'Bearer realm="{realm}"')
    with pytest.raises(RegistryFailed) as raised:
        registry.resolve(image(own.address), USER)
    assert raised.value.reason in {Reason.UNAUTHORIZED, Reason.REGISTRY_UNREACHABLE}


@pytest.mark.parametrize("token", ["s3cret\r\nX: y", "s3cret\u2603"], ids=["a header more", "a snowman"])
def test_a_token_that_no_request_can_hold_is_told_without_it(server, registry, tmp_path, token):
    own = server()
    trust(tmp_path, own.address)
    own.routes["/token"] = lambda handler: reply(handler, 200, json.dumps({"token": token}).encode())
    challenge = f'Bearer realm="http://{own.address}/token"'
    own.routes["/v2/"] = lambda handler: reply(handler, 401, WWW_Authenticate=challenge)
    with pytest.raises(RegistryFailed) as raised:
        registry.resolve(image(own.address), None)
    assert (raised.value.reason, "s3cret" in str(raised.value)) == (Reason.REGISTRY_UNREACHABLE, False)


@pytest.mark.parametrize(
    "body", [b"[" * 60_000, b'{"token": "t0", "more": "' + b"x" * 100_000 + b'"}'], ids=["deep", "long"]
)
def test_a_token_server_that_says_too_much_says_nothing(server, registry, tmp_path, body):
    own = server()
    trust(tmp_path, own.address)
    own.routes["/token"] = lambda handler: reply(handler, 200, body)
    challenge = f'Bearer realm="http://{own.address}/token"'
    own.routes["/v2/"] = lambda handler: reply(handler, 401, WWW_Authenticate=challenge)
    with pytest.raises(RegistryFailed) as raised:
        registry.resolve(image(own.address), None)
    assert raised.value.reason is Reason.UNAUTHORIZED


def test_a_kind_and_a_manifest_of_any_length_are_bounded(server, registry, tmp_path):
    own = server()
    trust(tmp_path, own.address)
    own.routes["/v2/"] = lambda handler: reply(
        handler, 200, b"{}," * (1 << 20), Docker_Content_Digest=DIGEST, Content_Type="x" * 5000
    )
    assert len(registry.resolve(image(own.address), None).kind) == warmmanifest.MAX_KIND
    with pytest.raises(RegistryFailed) as raised:
        registry.read(image(own.address), "v1", None, is_manifest=True)
    assert raised.value.reason is Reason.BAD_MANIFEST


@pytest.mark.parametrize(
    "failed",
    [CallFailed(Reason.PULL_FAILED, "UNKNOWN", TEXT), RegistryFailed(Reason.PULL_FAILED, TEXT)],
)
def test_what_goes_to_the_log_is_bounded_and_holds_no_signed_address(failed):
    for text in (failed.detail, str(failed)):
        assert len(text) <= 320
        assert "s3cret" not in text


@pytest.mark.parametrize("said", ["sha256:" + "0" * 64, "sha256:short", "sha512:" + "0" * 128, "x" * 5000, ""])
@pytest.mark.parametrize("name", ["v1", DIGEST], ids=["a tag", "a digest"])
def test_the_digest_is_the_one_asked_for_or_that_of_the_bytes(server, registry, tmp_path, name, said):
    """A mirror says what it likes; for a tag a digest in due form is all there is to go by."""
    own = server()
    trust(tmp_path, own.address)
    own.routes["/v2/"] = lambda handler: reply(handler, 200, DATA, Docker_Content_Digest=said)
    asked = warmref.parse(f"{own.address}/ml/app{':' if name == 'v1' else '@'}{name}")
    is_believed = name == "v1" and said == "sha256:" + "0" * 64
    assert registry.resolve(asked, None).digest == (said if is_believed else DIGEST)


@pytest.mark.parametrize("length", ["many", "-5", "9" * 30])
def test_a_length_of_nonsense_is_counted(server, registry, tmp_path, length):
    own = server()
    trust(tmp_path, own.address)

    def answer(handler):
        if handler.command == "GET":
            manifest(handler)
            return
        handler.send_response(200)
        handler.send_header("Docker-Content-Digest", DIGEST)
        handler.send_header("Content-Length", length)
        handler.end_headers()

    own.routes["/v2/"] = answer
    found = registry.resolve(image(own.address), None)
    assert (found.digest, found.size) == (DIGEST, len(DATA))


def test_a_hosts_file_of_nonsense_means_the_registry_itself(registry, tmp_path):
    (tmp_path / "a.io").mkdir()
    for text in ("= nonsense", "server = 5", 'host = "x"', '[host."http://b"]\ncapabilities = 3'):
        (tmp_path / "a.io" / "hosts.toml").write_text(text)
        from agent.warmer import hosts  # noqa: PLC0415

        places = hosts.endpoints(tmp_path, "a.io")
        assert places[-1].scheme in {"http", "https"}
