"""Closed words of the contract: reasons and remedies of findings, reasons of devices and of waiting gangs.

PascalCase values, since they reach Kubernetes conditions, Events and metric labels. A member is never renamed; docs/rules.md
lists the causes, which are open.
"""

import enum


class Reason(enum.StrEnum):
    """Why a finding, a device or a pod is what it is."""

    OK = "Ok"
    # Registration and advertisement
    PLUGIN_NOT_REGISTERED = "PluginNotRegistered"
    KUBELET_RESTARTED = "KubeletRestarted"
    NOT_ADVERTISED = "NotAdvertised"
    ADVERTISED_TWICE = "AdvertisedTwice"
    API_OBJECT_STALE = "ApiObjectStale"
    NODE_STARTING = "NodeStarting"
    # Devices
    GPU_LOST = "GpuLost"
    GPU_NOT_FOUND = "GpuNotFound"
    RESET_REQUIRED = "ResetRequired"
    DRIVER_UNRESPONSIVE = "DriverUnresponsive"
    READ_FAILED = "ReadFailed"
    XID = "Xid"
    ECC = "Ecc"
    ROW_REMAP = "RowRemap"
    RECOVERY_ACTION = "RecoveryAction"
    UNHEALTHY_BUT_HELD = "UnhealthyButHeld"
    NVLINK_DOWN = "NvLinkDown"
    SLOWDOWN = "Slowdown"
    FABRIC_NOT_READY = "FabricNotReady"
    PCI_NOT_IN_DRIVER = "PciNotInDriver"
    # MIG
    MIG_MISMATCH = "MigMismatch"
    MIG_EMPTY = "MigEmpty"
    MIG_PENDING = "MigPending"
    MIG_UUIDS_CHANGED = "MigUuidsChanged"
    # Driver and host
    DRIVER_LIBRARY_MISMATCH = "DriverLibraryMismatch"
    DRIVER_NOT_LOADED = "DriverNotLoaded"
    LIBRARY_NOT_FOUND = "LibraryNotFound"
    MAINTENANCE = "Maintenance"
    # Who holds what
    FOREIGN_PROCESS = "ForeignProcess"
    TERMINATING_POD = "TerminatingPod"
    POD_WITHOUT_DEVICE = "PodWithoutDevice"
    REPLICAS = "Replicas"
    CANNOT_JOIN = "CannotJoin"
    REJECTED = "Rejected"
    # The observer
    PLANE_UNREADABLE = "PlaneUnreadable"
    PARTIAL_VIEW = "PartialView"
    STALE_VALUES = "StaleValues"
    UNCONFIRMED_RISE = "UnconfirmedRise"


class Remedy(enum.StrEnum):
    """What a person does about it."""

    NONE = "None"
    WAIT = "Wait"
    RESTART_DEVICE_PLUGIN = "RestartDevicePlugin"
    RESTART_KUBELET = "RestartKubelet"
    DRAIN_AND_RESET_GPU = "DrainAndResetGpu"
    REBOOT_NODE = "RebootNode"
    REPLACE_GPU = "ReplaceGpu"
    RELOAD_DRIVER = "ReloadDriver"
    APPLY_MIG_LAYOUT = "ApplyMigLayout"
    START_FABRIC_MANAGER = "StartFabricManager"
    EVICT_HOLDER = "EvictHolder"
    STOP_FOREIGN_PROCESS = "StopForeignProcess"
    FIX_AGENT_DEPLOYMENT = "FixAgentDeployment"
    RECREATE_POD = "RecreatePod"
    INVESTIGATE = "Investigate"


class WaitReason(enum.StrEnum):
    """Why a gang waits."""

    NOT_ENOUGH_UNITS = "NotEnoughUnits"
    NO_SUCH_RESOURCE = "NoSuchResource"
    TOPOLOGY = "Topology"
    NODES_STALE = "NodesStale"
    NODES_BLIND = "NodesBlind"
    NEVER_FITS = "NeverFits"
    BEHIND_OTHERS = "BehindOthers"
    NAMESPACE_LIMIT = "NamespaceLimit"
    ON_STRIKE = "OnStrike"
    NEW_TERM = "NewTerm"
    BREAKER_HOLDING = "BreakerHolding"
    IMAGE_UNAVAILABLE = "ImageUnavailable"
    IMAGES_UNRESOLVED = "ImagesUnresolved"
    IMAGES_COLD = "ImagesCold"
    INTERNAL_ERROR = "InternalError"


class EndReason(enum.StrEnum):
    """Why a gang ended."""

    FINISHED = "Finished"
    CLIENT_GONE = "ClientGone"
    INVALID_REQUEST = "InvalidRequest"
    DUPLICATE = "Duplicate"
    LEASE_LOST = "LeaseLost"
