"""Settings of everything about images: what warmth is worth, what is held, hinted and checked. A part of AdmitterConfig."""

import dataclasses
import os
import shlex
from typing import Any

from admitter.core import imagename
from admitter.model.content import ImagePolicy
from muster import settings
from muster.settings import setting

_GIB = 1024**3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ImageSettings:
    warm_units: int = setting(
        8, text="most GPUs left over that a warm start outweighs when a place is chosen; 0: none", low=0, high=4096
    )
    warm_seconds: float = setting(
        300.0, text="start delay of an image at which all of --warm-units count", low=1, high=86_400
    )
    warm_hold_seconds: float = setting(
        0.0,
        text="how long a gang with a place may wait for its images to be warm there; 0: not at all",
        low=0,
        high=86_400,
    )
    image_check: bool = setting(
        default=True, text="resolve a gang's images before its release, by the warmer of a node of its place"
    )
    image_check_seconds: float = setting(5.0, text="how long a release waits for that", low=0.1, high=300)
    image_fresh_seconds: float = setting(60.0, text="how long its answer is believed", low=1, high=86_400)
    pull_patience_seconds: float = setting(
        600.0,
        text="a gang none of whose containers has started is planned anew so long after a member's first pull failed",
        low=1,
        high=86_400,
    )
    pull_secrets: bool = setting(
        default=False, text="show registries the pull secrets of waiting pods, where a RoleBinding lets us read them"
    )
    hint_registries: tuple[str, ...] = setting(
        (), text="registries of which nodes are told to warm images of waiting gangs; none: hints are off"
    )
    hint_gangs: int = setting(20, text="most waiting gangs whose images are hinted", low=1, high=1000)
    hint_herd: int = setting(20, text="most nodes that pull hinted images at once", low=1, high=100_000)
    hint_spares: int = setting(1, text="nodes that are hinted beside the likely ones of a gang", low=0, high=64)
    hint_namespace_gib: float = setting(
        200.0, text="most GiB that a namespace's hints make all nodes together hold", low=0, high=10**9
    )
    hint_namespace_gib_per_hour: float = setting(
        500.0, text="most GiB that a namespace's hints make all nodes together fetch in an hour", low=0, high=10**9
    )
    hint_verify: str = setting(
        "",
        text="program that is given IMAGE@DIGEST before it is hinted; exit status 0 lets it pass; split as a shell does",
    )

    @property
    def verify_argv(self) -> tuple[str, ...]:
        """The verification's command."""
        return tuple(shlex.split(self.hint_verify))

    @property
    def image_policy(self) -> ImagePolicy:
        """What decisions about images rest on."""
        return ImagePolicy(
            preference_units=self.warm_units,
            preference_seconds=self.warm_seconds,
            hold_seconds=self.warm_hold_seconds,
            is_checked=self.image_check,
            check_seconds=self.image_check_seconds,
            fresh_seconds=self.image_fresh_seconds,
            registries=frozenset(self.hint_registries),
            hinted_gangs=self.hint_gangs,
            herd=self.hint_herd,
            spares=self.hint_spares,
            namespace_bytes=round(self.hint_namespace_gib * _GIB),
            namespace_bytes_per_hour=round(self.hint_namespace_gib_per_hour * _GIB),
        )


def _registries(config: Any) -> str:
    wrong = [host for host in config.hint_registries if imagename.host(imagename.full(f"{host}/x:y")) != host]
    return "\n".join(f"--hint-registries: {host!r} is not a registry's host[:port]" for host in wrong)


def _hold(config: Any) -> str:
    if config.warm_hold_seconds and not config.hint_registries:
        return "--warm-hold-seconds: is of no use without --hint-registries: nobody would warm anything"
    return ""


def _verify(config: Any) -> str:
    try:
        argv = config.verify_argv
    except ValueError as error:
        return f"--hint-verify: {error}"
    return f"--hint-verify: {argv[0]} is not a program" if argv and not os.access(argv[0], os.X_OK) else ""


CHECKS: tuple[settings.Check, ...] = (_registries, _hold, _verify)
