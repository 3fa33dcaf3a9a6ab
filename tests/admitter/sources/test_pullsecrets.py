"""Pull secrets: read one by one, for who waits, and forgotten after."""

import asyncio
import base64
import json
import types

import pytest

from admitter.model.content import Credential, PullSecret
from admitter.sources import pullsecrets


def encoded(auths):
    return base64.b64encode(json.dumps({"auths": auths}).encode()).decode()


AUTH = base64.b64encode(b"user:pass:word").decode()
READ = {
    "username and password": ({"r.example": {"username": "u", "password": "p"}}, {"r.example": ("u", "p")}),
    "auth alone": ({"https://r.example/v2/": {"auth": AUTH}}, {"r.example": ("user", "pass:word")}),
    "docker hub": ({"https://index.docker.io/v1/": {"auth": AUTH}}, {"docker.io": ("user", "pass:word")}),
    "an entry without anything": ({"r.example": {}}, {}),
}


@pytest.mark.parametrize("case", READ)
def test_what_a_secret_holds(case):
    auths, wanted = READ[case]
    found = pullsecrets.credentials(encoded(auths))
    assert {host: (each.username, each.password) for host, each in found.items()} == wanted


@pytest.mark.parametrize(
    "text", ["", "!", base64.b64encode(b"[]").decode(), encoded([]), encoded({"r": {"auth": "!"}})]
)
def test_nonsense_is_nothing(text):
    assert pullsecrets.credentials(text) == {}


class Client:
    """Answers for one secret; everything else may not be read."""

    def __init__(self):
        self.asked = []

    async def get(self, kind, name, namespace):
        self.asked.append((namespace, name))
        if name != "mine":
            raise OSError("forbidden")
        data = {".dockerconfigjson": encoded({"r.example": {"auth": AUTH}})}
        return types.SimpleNamespace(data=data, metadata=types.SimpleNamespace(uid="s", resourceVersion="7"))


async def test_only_what_is_named_is_read_and_forgotten_when_nobody_names_it():
    client, now = Client(), [0.0]
    secrets = pullsecrets.PullSecrets(client, lambda: now[0])
    task = asyncio.create_task(secrets.run())
    wanted = {"team-a": frozenset({"mine", "theirs"})}
    assert secrets.want(wanted) == {}
    async with asyncio.timeout(30):
        while len(client.asked) < 2 or not secrets.want(wanted):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    credential = Credential(username="user", password="pass:word")
    read = PullSecret(version="s/7", credential=credential)
    assert secrets.want(wanted) == {("team-a", "r.example"): read}
    assert sorted(client.asked) == [("team-a", "mine"), ("team-a", "theirs")]
    assert secrets.want({}) == {}
    assert secrets.want({"team-b": frozenset({"mine"})}) == {}
    now[0] = pullsecrets.SECONDS + 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert "pass:word" not in repr(read)


async def test_what_one_namespace_names_keeps_no_other_out():
    client = Client()
    secrets = pullsecrets.PullSecrets(client, lambda: 0.0)
    flood = frozenset(f"s{number:03}" for number in range(pullsecrets.MAX_SECRETS))
    wanted = {"a": flood, "team-b": frozenset({"mine"})}
    secrets.want(wanted)
    task = asyncio.create_task(secrets.run())
    async with asyncio.timeout(30):
        while not secrets.want(wanted):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert ("team-b", "mine") in client.asked
    assert sum(namespace == "a" for namespace, _ in client.asked) == pullsecrets.MAX_EACH
