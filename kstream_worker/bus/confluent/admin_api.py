"""Names of `confluent_kafka.admin` that it exports without telling type checkers."""

from __future__ import annotations

from typing import Any

import confluent_kafka.admin

_admin: Any = confluent_kafka.admin

AclOperation = _admin.AclOperation
ConfigResource = _admin.ConfigResource
NewTopic = _admin.NewTopic
OffsetSpec = _admin.OffsetSpec
ResourceType = _admin.ResourceType
