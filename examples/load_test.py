"""Measure the requests per second and the latency of a running retrieval service.

    python examples/load_test.py http://127.0.0.1:8000 --items 100000 --connections 8 --seconds 10

One process opens all connections. Over each connection, it asks for the neighbours of a random
item, waits for the answer, and asks again. The script uses only the standard library, so that it
needs little processor time itself.
"""

import argparse
import asyncio
import random
import time
from urllib.parse import urlsplit


async def one_connection(
    host: str, port: int, n_items: int, until: float, seed: int
) -> list[float]:
    """Send requests over one connection; return the seconds that each request took.

    The first request is always sent. No further request is sent after the time `until`.
    """
    choose = random.Random(seed)
    reader, writer = await asyncio.open_connection(host, port)
    seconds = []
    while not seconds or time.perf_counter() < until:  # at least one request
        started = time.perf_counter()
        path = f"/items/{choose.randrange(n_items)}/similar?k=10"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        lines = head.lower().split(b"\r\n")
        (length,) = (int(line[15:]) for line in lines if line.startswith(b"content-length:"))
        await reader.readexactly(length)
        seconds.append(time.perf_counter() - started)
    writer.close()
    return seconds


async def load(url: str, n_items: int, n_connections: int, seconds: float) -> dict[str, float]:
    """Send requests over several connections for some seconds.

    Return the requests per second, and percentiles of the latency in milliseconds.
    """
    host, port = urlsplit(url).hostname or "127.0.0.1", urlsplit(url).port or 80
    started = time.perf_counter()
    jobs = [
        one_connection(host, port, n_items, started + seconds, seed)
        for seed in range(n_connections)
    ]
    found = sorted(taken for answer in await asyncio.gather(*jobs) for taken in answer)
    lasted = time.perf_counter() - started
    at = {share: found[min(len(found) - 1, int(share * len(found)))] for share in (0.5, 0.95, 0.99)}
    return {
        "requests": len(found),
        "requests per second": len(found) / lasted,
        **{f"p{share * 100:.0f} ms": value * 1e3 for share, value in at.items()},
    }


def main() -> None:
    """Run the load test of the command line, and print its results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("url")
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    asyncio.run(load(given.url, given.items, given.connections, 1.0))  # warm-up
    found = asyncio.run(load(given.url, given.items, given.connections, given.seconds))
    print(
        f"{given.connections} connections: " + ", ".join(f"{k} {v:,.1f}" for k, v in found.items())
    )


if __name__ == "__main__":
    main()
