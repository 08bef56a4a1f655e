"""What the source article describes, for comparison: gate with shapely, key from the rounded geometry, a claim in
Redis, one POST with aiohttp; 64 in flight. Usage: article.py URL REDIS_SOCKET SECONDS. Prints: events, seconds, CPU
seconds, resident MiB."""

import asyncio
import hashlib
import json
import resource
import sys
import time

import aiohttp
import redis.asyncio
from shapely.geometry import shape

IN_FLIGHT = 64


def rounded(coords, precision=7):
    if coords and isinstance(coords[0], (int, float)):
        return [round(c, precision) for c in coords]
    return [rounded(part, precision) for part in coords]


def key_of(feature, device, kind):
    geometry = feature["geometry"]
    canonical = {"type": geometry["type"], "coordinates": rounded(geometry["coordinates"])}
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"))
    return "idem:v1:" + hashlib.sha256(f"{device}:{kind}:{text}".encode()).hexdigest()


def feature(n):
    return {
        "type": "Feature",
        "id": f"v{n % 40}-{n}",
        # Each on its own spot: this key knows no time, so equal places would be one event.
        "geometry": {"type": "Point", "coordinates": [round(13.0 + n * 1e-6, 6), round(52.0 + (n % 8009) * 1e-4, 6)]},
        "properties": {"device_id": f"veh-{n % 40:03}", "event_type": "position", "seq": n,
                       "ts": "2026-12-01T00:00:00Z", "speed_kmh": (n % 900) / 10, "heading": n % 360},
    }


async def deliver(session, claims, url, n):
    event = feature(n)
    geometry = shape(event["geometry"])
    if geometry.is_empty or not geometry.is_valid:
        return 0
    key = key_of(event, event["properties"]["device_id"], event["properties"]["event_type"])
    if not await claims.set(key, b"1", nx=True, ex=3600):
        return 0
    headers = {"Content-Type": "application/geo+json", "Idempotency-Key": key}
    async with session.post(url, data=json.dumps(event), headers=headers) as answer:
        return 1 if 200 <= answer.status < 300 else 0


async def worker(counter, session, claims, url, end):
    done = 0
    while time.monotonic() < end:
        done += await deliver(session, claims, url, next(counter))
    return done


async def main(url, socket, seconds):
    claims = redis.asyncio.Redis(unix_socket_path=socket, max_connections=IN_FLIGHT)
    counter = iter(range(1, 1 << 40))
    timeout = aiohttp.ClientTimeout(total=10)
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        start = time.monotonic()
        workers = [worker(counter, session, claims, url, start + seconds) for _ in range(IN_FLIGHT)]
        events = sum(await asyncio.gather(*workers))
        elapsed = time.monotonic() - start
    await claims.aclose()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(events, elapsed, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
