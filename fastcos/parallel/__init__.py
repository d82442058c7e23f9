"""The thread pool under every kernel: blocks of rows, progress, cancellation."""

from fastcos.parallel.pool import (
    Cuts as Cuts,
)
from fastcos.parallel.pool import (
    Progress as Progress,
)
from fastcos.parallel.pool import (
    cuts_by_rows as cuts_by_rows,
)
from fastcos.parallel.pool import (
    cuts_by_work as cuts_by_work,
)
from fastcos.parallel.pool import (
    one_writer as one_writer,
)
from fastcos.parallel.pool import (
    poisoned as poisoned,
)
from fastcos.parallel.pool import (
    rows_reaching as rows_reaching,
)
from fastcos.parallel.pool import (
    run as run,
)
