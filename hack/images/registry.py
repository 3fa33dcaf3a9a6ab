"""Debian's docker-registry on loopback, open or behind one user's password."""

import http.client
import pathlib

from hack.images import process

USER, PASSWORD = "muster", "roll-call"
_HTPASSWD = "muster:$2y$05$mustermustermustermuseM3.OQxbGv2jE7K4VP19sgPsl6Rhy9ly\n"
"""bcrypt of the password above; the registry takes nothing else."""


class Registry:
    """One registry with its own folder. `address` is host:port."""

    def __init__(self, folder: pathlib.Path, *, with_password: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.address = f"127.0.0.1:{process.free_port()}"
        self.credentials = (USER, PASSWORD) if with_password else None
        (folder / "htpasswd").write_text(_HTPASSWD)
        guard = f"auth: {{htpasswd: {{realm: muster, path: {folder}/htpasswd}}}}\n" if with_password else ""
        config = folder / "registry.yml"
        config.write_text(
            f"version: 0.1\nlog: {{level: warn, accesslog: {{disabled: true}}}}\n{guard}"
            f"storage: {{filesystem: {{rootdirectory: {folder}/data}}, delete: {{enabled: true}}}}\n"
            f'http: {{addr: "{self.address}"}}\n'
        )
        binary = process.find("docker-registry", "docker-registry")
        self._child = process.Child([str(binary), "serve", str(config)], folder / "registry.log")

    def start(self) -> None:
        self._child.start(self._answers)

    def stop(self) -> None:
        self._child.stop()

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(self.address, timeout=2)
        try:
            connection.request("GET", "/v2/")
            return connection.getresponse().status in {200, 401}
        except OSError:
            return False
        finally:
            connection.close()
