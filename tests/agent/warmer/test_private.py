"""Images that need credentials: who gets them, and what happens while nobody has them."""

import asyncio
import dataclasses
import logging
import sys

import pytest

from agent.model.warm import Mode, Reason
from agent.warmer.client import CallFailed
from muster.model.warmth import Hold, Level, PullState
from tests.agent.warmer.looks import has_reason, is_warm, layers_asked, settled

SHADOW, VISIBLE = Mode.SHADOW, Mode.VISIBLE


async def test_a_private_image_stays_private(world, runtime, guarded, wanted, tmp_path):
    """Warmed with the node's credentials it is not listed; a pull without any gets 401, with them no layer comes."""
    runtime.trust(guarded.address)
    name = f"{guarded.address}/ml/private:v1"
    user, password = guarded.credentials
    answer = {"auth": {guarded.address: {"username": user, "password": password}}, "cacheDuration": "1m"}
    script = tmp_path / "provider.py"
    script.write_text(f"import json, sys\njson.load(sys.stdin)\nprint(json.dumps({answer!r}))\n")
    here = world(credential_provider=f"{sys.executable} {script}", credential_images=(guarded.address,))
    await here.start(wanted(name))
    report = await here.until(is_warm(here, name), "a shadow")
    assert here.image(name, report).hold is Hold.SHADOW
    assert runtime.run_ctr("images", "ls", "-q") == ""
    with pytest.raises(CallFailed) as refused:
        await here.client.pull(name, None, lease="", handler="")
    assert refused.value.reason is Reason.UNAUTHORIZED
    await here.client.pull(name, guarded.credentials, lease="", handler="")
    assert "complete" in runtime.run_ctr("images", "check", f"name=={name}")


async def test_a_provider_that_hangs_holds_nobody_up(world, runtime, faulty, guarded, name, wanted, tmp_path):
    """The private image waits for its credentials; the loop goes on, and other hosts' images get warm."""
    runtime.trust(guarded.address)
    private = f"{guarded.address}/ml/private:v1"
    asked = tmp_path / "asked"
    script = tmp_path / "provider.py"
    script.write_text(f"import time\nopen({str(asked)!r}, 'a').close()\ntime.sleep(3600)\n")
    here = world(credential_provider=f"{sys.executable} {script}", credential_images=(guarded.address,))
    await here.start(wanted(private), wanted(name))
    await settled(lambda: asyncio.sleep(0, asked.exists()), bool)
    report = await here.until(is_warm(here, name), "the public image")
    assert here.image(private, report).reason == ""


async def test_a_pull_that_waits_for_credentials_waits_alone(world, runtime, guarded, wanted, tmp_path):
    """The provider answered the question what the image is, and hangs when the pull asks again."""
    runtime.trust(guarded.address)
    private = f"{guarded.address}/ml/private:v1"
    user, password = guarded.credentials
    answer = {"auth": {guarded.address: {"username": user, "password": password}}}
    asked = tmp_path / "asked"
    script = tmp_path / "provider.py"
    script.write_text(
        f"import json, os, time\nif os.path.exists({str(asked)!r}):\n    time.sleep(3600)\n"
        f"open({str(asked)!r}, 'w').close()\nprint(json.dumps({answer!r}))\n"
    )
    here = world(credential_provider=f"{sys.executable} {script}", credential_images=(guarded.address,))
    await here.start(wanted(private))
    await here.until(
        lambda report: here.image(private, report).pull is PullState.RESOLVING if report.images else False, "a pull"
    )
    here.engine.busy.starting(1)
    await here.until(lambda report: here.image(private, report).pull is PullState.PAUSED, "a pull that stands back")


async def test_after_garbage_collection_a_shadow_is_complete(world, runtime, faulty, name, wanted):
    here = world()
    await here.start(wanted(name, SHADOW))
    await here.until(is_warm(here, name), "a shadow")
    await here.client.create_lease("muster-nothing", "sha256:0", here.engine._keeper.expires_at(), is_done=False)
    (nothing,) = [lease for lease in await here.client.list_leases() if lease.id == "muster-nothing"]
    await here.client.delete_lease(nothing)
    faulty.requests.clear()
    await here.client.pull(name, None, lease="", handler="")
    assert layers_asked(faulty) == []
    assert "complete" in runtime.run_ctr("images", "check", f"name=={name}")


async def test_a_pods_secret_opens_a_hint_and_is_gone_when_it_is_warm(world, runtime, guarded, wanted, content, caplog):
    """Nothing else of it becomes usable: it is a shadow, and in no log or report."""
    caplog.set_level(logging.DEBUG)
    runtime.trust(guarded.address)
    name = f"{guarded.address}/ml/private@{content.root.digest}"
    hint = wanted(name, is_hint=True, secret="s/1")
    here = world(hint_registries=(guarded.address,))
    await here.start()
    here.engine.hint((hint,))
    report = await here.until(has_reason(here, name, Reason.SECRET_MISSING), "what it misses")
    assert here.image(name, report).level is Level.COLD
    user, password = guarded.credentials
    here.engine.hint((hint,), {name: (user, "wrong")})
    await here.until(has_reason(here, name, Reason.UNAUTHORIZED), "a wrong secret")
    here.engine.hint((dataclasses.replace(hint, secret="s/2"),), {name: (user, password)})
    report = await here.until(is_warm(here, name), "a shadow")
    assert here.image(name, report).hold is Hold.SHADOW
    assert runtime.run_ctr("images", "ls", "-q") == ""
    await settled(lambda: asyncio.sleep(0, here.engine._estate.secrets.of(hint.reference)), lambda kept: kept is None)
    with pytest.raises(CallFailed) as refused:
        await here.client.pull(name, None, lease="", handler="")
    assert refused.value.reason is Reason.UNAUTHORIZED
    assert password not in caplog.text + repr(report)
