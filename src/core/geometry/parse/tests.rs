//! Tables of texts and what becomes of them.

use super::*;

fn parse(text: &str) -> Result<Geometry, GeometryRefusal> {
    geometry(text, &Limits::default())
}

/// `kind at pointer` of the refusal, with `defect` before it where it is a terminal defect.
fn refusal(text: &str) -> String {
    let refusal = parse(text).unwrap_err();
    let class = if refusal.defect().is_some() { "defect" } else { "refused" };
    format!("{class}: {} @{}", refusal.kind, refusal.pointer)
}

#[test]
fn every_type_is_read_and_type_may_stand_last() {
    assert_eq!(
        parse(r#"{"coordinates":[1,2.5e0],"type":"Point"}"#).unwrap(),
        Geometry::Point(Some([1.0, 2.5]))
    );
    assert_eq!(parse(r#"{"type":"Point","coordinates":[]}"#).unwrap(), Geometry::Point(None));
    assert_eq!(
        parse(r#"{"type":"MultiPoint","coordinates":[[1,2,3],[4,5,6]]}"#).unwrap(),
        Geometry::MultiPoint(vec![[1.0, 2.0], [4.0, 5.0]])
    );
    assert_eq!(
        parse(r#" { "type" : "LineString" , "coordinates" : [ [ 1 , 2 ] , [ 3 , -4E1 ] ] } "#).unwrap(),
        Geometry::LineString(vec![[1.0, 2.0], [3.0, -40.0]])
    );
    assert_eq!(
        parse(r#"{"type":"MultiLineString","coordinates":[[[1,2],[3,4]],[[5,6],[7,8]]]}"#).unwrap(),
        Geometry::MultiLineString(vec![vec![[1.0, 2.0], [3.0, 4.0]], vec![[5.0, 6.0], [7.0, 8.0]]])
    );
    let ring = vec![[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]];
    assert_eq!(
        parse(r#"{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,0]],[]]}"#).unwrap(),
        Geometry::Polygon(vec![ring.clone(), vec![]])
    );
    assert_eq!(
        parse(r#"{"type":"MultiPolygon","coordinates":[[[[0,0],[1,0],[1,1],[0,0]]],[[]]]}"#).unwrap(),
        Geometry::MultiPolygon(vec![vec![ring], vec![vec![]]])
    );
    assert_eq!(
        parse(r#"{"geometries":[{"coordinates":[1,2],"type":"Point"}],"type":"GeometryCollection"}"#)
            .unwrap(),
        Geometry::GeometryCollection(vec![Geometry::Point(Some([1.0, 2.0]))])
    );
}

#[test]
fn escapes_in_member_names_are_seen_through() {
    let text = r#"{"\u0074ype":"\u0050oint","coordinate\u0073":[1,2],"x\"y":"]}","\ud800":1}"#;
    assert_eq!(parse(text).unwrap(), Geometry::Point(Some([1.0, 2.0])));
    assert_eq!(
        refusal(r#"{"type":"Point","\u0074ype":"Point","coordinates":[1,2]}"#),
        "refused: member \"type\" is duplicated @"
    );
}

#[test]
fn numbers_are_the_nearest_doubles() {
    let text = r#"{"type":"MultiPoint","coordinates":[[0.1,-0.0],[1.7976931348623157e308,5e-324],[123456789012345678901234567890,1e-400]]}"#;
    let Geometry::MultiPoint(points) = parse(text).unwrap() else { panic!("a MultiPoint") };
    assert_eq!(points[0][0], 0.1);
    assert!(points[0][1].is_sign_negative());
    assert_eq!(points[1], [f64::MAX, 5e-324]);
    assert_eq!(points[2], [123_456_789_012_345_678_901_234_567_890.0, 0.0]);
}

#[test]
fn refusals_name_member_and_place() {
    for (text, wanted) in [
        ("null", "refused: a geometry must be an object @"),
        ("[]", "refused: a geometry must be an object @"),
        ("{}", "refused: a geometry needs a \"type\" string @"),
        (r#"{"type":7,"coordinates":[1,2]}"#, "refused: a geometry needs a \"type\" string @/type"),
        (r#"{"type":"\ud800","coordinates":[1,2]}"#, "refused: a geometry needs a \"type\" string @/type"),
        (r#"{"type":"point","coordinates":[1,2]}"#, "refused: unknown geometry type \"point\" @/type"),
        (r#"{"type":"Point"}"#, "refused: member \"coordinates\" is missing @"),
        (r#"{"type":"GeometryCollection"}"#, "refused: member \"geometries\" is missing @"),
        (
            r#"{"type":"Point","coordinates":[1,2],"coordinates":[1,2]}"#,
            "refused: member \"coordinates\" is duplicated @",
        ),
        (
            r#"{"type":"GeometryCollection","geometries":[],"coordinates":[]}"#,
            "refused: member \"coordinates\" does not belong in this geometry @",
        ),
        (
            r#"{"type":"Point","coordinates":[1,2],"geometries":[]}"#,
            "refused: member \"geometries\" does not belong in this geometry @",
        ),
        (
            r#"{"type":"Point","coordinates":[1,2],"features":[]}"#,
            "refused: member \"features\" does not belong in this geometry @",
        ),
        (r#"{"type":"Point","coordinates":null}"#, "refused: an array is expected @/coordinates"),
        (
            r#"{"type":"Point","coordinates":[1,"2"]}"#,
            "refused: a position holds something that is no number @/coordinates/1",
        ),
        (
            r#"{"type":"Point","coordinates":[1e400,2]}"#,
            "refused: a coordinate is not finite as a double @/coordinates/0",
        ),
        (
            r#"{"type":"LineString","coordinates":[[1,2],[3]]}"#,
            "refused: a position needs two numbers, this one has 1 @/coordinates/1",
        ),
        (
            r#"{"type":"LineString","coordinates":[[1,2]]}"#,
            "refused: a line needs two positions, this one has one @/coordinates",
        ),
        (
            r#"{"type":"Polygon","coordinates":[[[1,2],[3,4]]]}"#,
            "refused: a ring needs four positions, this one has 2 @/coordinates/0",
        ),
        (
            r#"{"type":"Polygon","coordinates":[[],[[0,0],[1,0],[1,1],[0,0]]]}"#,
            "refused: the shell is empty, yet there are holes @/coordinates",
        ),
        (
            r#"{"type":"MultiLineString","coordinates":[[[1,2],[3,4]],[]]}"#,
            "refused: a part of a Multi* geometry is empty @/coordinates/1",
        ),
        (
            r#"{"type":"GeometryCollection","geometries":[{"type":"Point","coordinates":[1,2]},{"type":"Point","coordinates":[[1]]}]}"#,
            "refused: a position holds something that is no number @/geometries/1/coordinates/0",
        ),
        (
            r#"{"type":"Point","coordinates":[1,2],"bbox":[1,2,3]}"#,
            "refused: bbox must be an array of 2n numbers @/bbox",
        ),
    ] {
        assert_eq!(refusal(text), wanted, "{text}");
    }
    for text in
        ["", "{", r#"{"type":"Point","coordinates":[NaN,2]}"#, r#"{"type":"Point","coordinates":[1,2]}x"#]
    {
        assert!(matches!(parse(text).unwrap_err().kind, RefusalKind::NotJson { .. }), "{text}");
    }
}

#[test]
fn legal_text_that_shapely_cannot_read_is_a_defect() {
    assert_eq!(
        refusal(r#"{"type":"LineString","coordinates":[[1,2],[3,4,5]]}"#),
        "defect: 2D and 3D positions are mixed @/coordinates/1"
    );
    assert_eq!(
        refusal(r#"{"type":"Point","coordinates":[1,2,3,4]}"#),
        "defect: a position has more than three numbers @/coordinates"
    );
    // A later fault that makes it no GeoJSON wins.
    assert!(refusal(r#"{"type":"LineString","coordinates":[[1,2],[3,4,5],[6]]}"#).starts_with("refused"));
    let limits = Limits { vertices_max: 2, ..Limits::default() };
    let refused =
        geometry(r#"{"type":"LineString","coordinates":[[1,2],[3,4],[5,6]]}"#, &limits).unwrap_err();
    let defect = refused.defect().unwrap();
    assert_eq!(defect.kind, DefectKind::TooManyVertices);
    assert_eq!(defect.location, Some([5.0, 6.0]));
}

#[test]
fn depth_is_bounded_whatever_is_nested() {
    let collections = |levels: usize| {
        let open = r#"{"type":"GeometryCollection","geometries":["#.repeat(levels);
        format!(r#"{open}{{"type":"Point","coordinates":[1,2]}}{}"#, "]}".repeat(levels))
    };
    assert!(parse(&collections(63)).is_ok());
    for text in [
        collections(64),
        collections(100_000),
        format!(r#"{{"type":"Point","coordinates":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000)),
        format!(r#"{{"type":"Point","coordinates":[1,2],"x":{}{}}}"#, "[".repeat(200), "]".repeat(200)),
    ] {
        assert!(matches!(parse(&text).unwrap_err().kind, RefusalKind::TooDeep { depth_max: 128 }));
    }
    assert!(matches!(parse(&"[".repeat(100_000)).unwrap_err().kind, RefusalKind::NotJson { .. }));
}
