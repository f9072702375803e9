"""What batches need, imported once for all worker processes of a machine.

No thread may be started by it: the processes are forks. So what imports polars or pyarrow, which start some,
is imported by each process as it begins (`flows.run.workers`).
"""

import aiobotocore.session  # noqa: F401
import s3fs  # noqa: F401

import flows.work.alarm_rule  # noqa: F401
import paano.alarms.explain
import paano.alarms.settle
import paano.model  # noqa: F401
import storage.history.reading
import storage.objects.s3_get
import storage.registry.registry  # noqa: F401
from paano.network.unlocked import unlocked
from storage.objects.s3 import known_services

unlocked()
known_services()
