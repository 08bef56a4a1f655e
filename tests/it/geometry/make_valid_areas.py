"""Writes make_valid_areas.json: for each invalid area of the reference vectors the area of what GEOS makes of it.

python3 tests/it/geometry/make_valid_areas.py ../shared/golden > tests/it/geometry/make_valid_areas.json
Only names and numbers are written; null where GEOS leaves no area.
"""

import json
import math
import sys

import shapely
from shapely.geometry import shape

areas = {}
for name in ("geometry_validity.jsonl", "geometry_validity_more.jsonl"):
    for line in open(f"{sys.argv[1]}/{name}"):
        case = json.loads(line)
        if case["outcome_class"] != "invalid" or not case["strict_json"] or "recipe" in case:
            continue
        geometry = json.loads(case["geojson_text"])
        if geometry["type"] not in ("Polygon", "MultiPolygon"):
            continue
        try:
            area = shapely.make_valid(shape(geometry)).area
        except Exception:
            area = 0.0
        areas[case["name"]] = area if 0.0 < area < math.inf else None
print("{")
print(",\n".join(f" {json.dumps(name)}: {json.dumps(area)}" for name, area in areas.items()))
print("}")
