"""A connection that is closed if it asks nothing.

uvicorn waits for a request as long as the client keeps the connection open, and each connection takes one of
the few places. So silent clients could keep everybody else out.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0


class Connection(H11Protocol):
    """An HTTP connection that is closed if the header of a request is not complete in time.

    A connection that has been answered and is silent may stay for uvicorn's `timeout_keep_alive`.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start to wait for the first request."""
        super().connection_made(transport)
        self._wait_for_header()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request; what belongs to none so far must become one in time."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait_for_header()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_header(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self._close)

    def _stop_waiting(self) -> None:
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        self._deadline = None
        # The request may have been taken from what was received with an earlier one.
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()
