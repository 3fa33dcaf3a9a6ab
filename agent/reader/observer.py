"""What happened, from both of its sources: NVML's events and the kernel log.

Input: events by UUID, kernel records. Output: messages for the Watch streams, and each GPU's Xids since boot.

Invariant: while NVML is closed Xids still arrive, from the kernel log (design.md section 8); an Xid that both sources
tell is told once.
"""

import datetime

from agent.model import planes
from agent.reader import identities, kernel_log, nvml, watchers, xids
from muster import clock
from muster.model import pbform
from muster.model.reading import Known, Reading, Unknown
from muster.pb.muster.reader.v1 import reader_pb2


class Observer:
    """Joins the two sources."""

    def __init__(self, now: clock.Clock, streams: watchers.Watchers) -> None:
        self._clock = now
        self._streams = streams
        self._history = xids.History()
        self.identities: identities.Identities | None = None

    def on_nvml_event(self, uuid: str, event: nvml.Event) -> None:
        """An event of the driver's."""
        now = self._clock.utc()
        if event.kind != "xid":
            self._publish_device(uuid, event.kind, now, None)
            return
        xid = planes.Xid(code=event.data, at=now, gi=event.gi, ci=event.ci, source=planes.XidSource.NVML)
        pci = None if self.identities is None else self.identities.pci_of(uuid)
        if pci is None or self._history.add(pci, xid):
            self._publish_device(uuid, "xid", now, xid)

    def on_kernel_record(self, record: planes.KernelRecord) -> None:
        """A record about a GPU."""
        message = reader_pb2.WatchResponse()
        pbform.fill(message.kernel_record, record)
        self._streams.publish(message)
        told = kernel_log.xid_of(record)
        if told is None or not self._history.add(told.pci, told.xid):
            return
        uuid = None if self.identities is None else self.identities.uuid_at(told.pci)
        if uuid is not None:
            self._publish_device(uuid, "xid", told.xid.at, told.xid)

    def on_session(self, state: str, detail: str) -> None:
        """The NVML session changed."""
        self._streams.publish(reader_pb2.WatchResponse(session=reader_pb2.SessionEvent(state=state, detail=detail)))

    def xids_of(self, pci: Reading[str], *, has_source: Reading[bool]) -> Reading[tuple[planes.Xid, ...]]:
        """Return a GPU's Xids; `has_source`: the reason why nobody listens, if nobody does."""
        match pci, has_source:
            case Known(address), Known(_):
                return Known(self._history.of(address))
            case Unknown() as unknown, _:
                return unknown
            case _, unknown:
                return unknown  # type: ignore[return-value]

    def _publish_device(self, uuid: str, kind: str, at: datetime.datetime, xid: planes.Xid | None) -> None:
        message = reader_pb2.WatchResponse()
        message.device.uuid, message.device.kind = uuid, kind
        message.device.at.FromDatetime(at)
        if xid is not None:
            pbform.fill(message.device.xid, xid)
        self._streams.publish(message)
