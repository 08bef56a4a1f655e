"""How far what `waypost lint --fix` makes of the invalid areas of the reference vectors is from what GEOS makes of them.

python3 tests/it/geometry/mended_against_make_valid.py target/release/waypost ../shared/golden   (needs shapely)
"""

import json
import subprocess
import sys

import shapely
from shapely.geometry import shape

binary, golden = sys.argv[1:]
geometries = []
for file in ("geometry_validity.jsonl", "geometry_validity_more.jsonl"):
    for line in open(f"{golden}/{file}"):
        case = json.loads(line)
        if case["outcome_class"] == "invalid" and case["strict_json"] and "geojson_text" in case:
            geometry = json.loads(case["geojson_text"])
            if geometry.get("type") in ("Polygon", "MultiPolygon"):
                geometries.append((case["name"], geometry))

features = (
    json.dumps({"type": "Feature", "geometry": geometry, "properties": {"n": n}})
    for n, (_, geometry) in enumerate(geometries)
)
output = subprocess.run([binary, "lint", "--fix"], input="\n".join(features), capture_output=True, text=True).stdout
mended = {}
for line in output.splitlines():
    feature = json.loads(line)
    if feature.get("type") == "Feature" and feature["geometry"]:
        mended[feature["properties"]["n"]] = feature["geometry"]

compared = invalid = far = 0
worst = 0.0
for n, (name, geometry) in enumerate(geometries):
    if n not in mended:
        continue
    ours = shape(mended[n])
    invalid += not ours.is_valid
    try:
        theirs = shapely.make_valid(shape(geometry))
        difference = theirs.symmetric_difference(ours).area / max(theirs.area, 1e-300)
    except shapely.errors.GEOSException as error:
        print(f"{name}: not compared, {error}")
        continue
    compared += 1
    worst = max(worst, difference)
    if difference > 1e-9:
        far += 1
        print(f"{name}: {difference}")
print(f"{len(geometries)} invalid areas, {len(mended)} mended, {compared} compared; not valid by GEOS: {invalid}; "
      f"symmetric difference over 1e-9 of the area: {far}, worst {worst:.1e}")
sys.exit(1 if far or invalid else 0)
