"""What batches need, imported once for all worker processes of a machine.

No thread may be started by it: the processes are forks.
"""

import aiobotocore.session  # noqa: F401
import s3fs  # noqa: F401

import storage.objects.s3_get  # noqa: F401
from paano.network.unlocked import unlocked
from storage.objects.s3 import known_services

unlocked()
known_services()
