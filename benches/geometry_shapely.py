"""Times of shapely's is_valid on the shapes of geometry.rs: `python3 benches/geometry_shapely.py`."""

import math
import time

import shapely
from shapely.geometry import MultiPolygon, Point, Polygon


def comb(n):
    points = [(i, i % 2) for i in range(n - 2)] + [(n - 3, -1), (0, -1), (0, 0)]
    return Polygon([(x / 1024, y / 1024) for x, y in points])


def star(n):
    def at(i):
        radius = 1.0 if i % 2 == 0 else 0.6
        angle = 2 * math.pi * i / (n - 1)
        return (13.4 + radius * math.cos(angle), 52.5 + radius * math.sin(angle))

    return Polygon([at(i) for i in range(n - 1)])


def square(x, y, w):
    return [(a / 1024, b / 1024) for a, b in [(x, y), (x + w, y), (x + w, y + w), (x, y + w), (x, y)]]


def lying(polygon):
    return Polygon([(y, x) for x, y in polygon.exterior.coords])


def shapes():
    yield "point", 1, Point(13.4, 52.5)
    yield "square", 5, Polygon([(0, 0), (1, 0), (1, 1), (0, 1)])
    for n in (1_000, 10_000, 100_000, 1_000_000):
        yield "comb", n, comb(n)
        yield "lying comb", n, lying(comb(n))
        if n <= 10_000:  # a larger one takes GEOS most of a minute
            yield "star", n, star(n)
    holes = [square(10 * i + 2, 10 * j + 2, 6) for i in range(100) for j in range(100)]
    yield "holes", 50_000, Polygon(square(0, 0, 1000), holes)
    parts = [Polygon(square(10 * i, 10 * j, 8)) for i in range(50) for j in range(50)]
    yield "parts", 12_500, MultiPolygon(parts)


print(f"shapely {shapely.__version__}, GEOS {shapely.geos_version_string}")
for name, vertices, shape in shapes():
    best, spent = math.inf, 0.0
    while spent < 1.0:
        start = time.perf_counter()
        valid = shapely.is_valid(shape)
        took = time.perf_counter() - start
        best, spent = min(best, took), spent + took
    assert valid, name
    print(f"{name:<12} {vertices:>9} {best * 1e3:12.6f} ms")
