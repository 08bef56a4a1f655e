//! JSON pointers (RFC 6901) into a feature, for device, type, time, sequence and volatile members.

use std::borrow::Cow;

use crate::core::json::{Kind, Scanner, Span, SyntaxError, unescape};

/// A pointer, split into its tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer(Vec<String>);

/// Why a text is no pointer to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointerError {
    /// It must begin with `/`; the whole document is no member.
    #[error("a JSON pointer begins with \"/\", for example \"/properties/ts\"")]
    NoSlash,
    /// `~` other than `~0` and `~1`.
    #[error("\"~\" in a JSON pointer is written \"~0\", and \"/\" in a name \"~1\"")]
    Tilde,
}

impl Pointer {
    /// The member names and array indices, outermost first.
    pub fn tokens(&self) -> &[String] {
        &self.0
    }
}

impl std::str::FromStr for Pointer {
    type Err = PointerError;

    fn from_str(text: &str) -> Result<Self, PointerError> {
        let rest = text.strip_prefix('/').ok_or(PointerError::NoSlash)?;
        let token = |token: &str| {
            let plain = token.replace("~0", "").replace("~1", "");
            if plain.contains('~') {
                return Err(PointerError::Tilde);
            }
            Ok(token.replace("~1", "/").replace("~0", "~"))
        };
        rest.split('/').map(token).collect::<Result<_, _>>().map(Self)
    }
}

/// A value that can name or order something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scalar<'a> {
    /// A string that is not empty, escapes resolved.
    Text(Cow<'a, str>),
    /// A number, as written.
    Number(&'a str),
}

impl<'a> Scalar<'a> {
    /// Its text, kept as long as the feature.
    pub fn into_text(self) -> Cow<'a, str> {
        match self {
            Scalar::Text(text) => text,
            Scalar::Number(text) => Cow::Borrowed(text),
        }
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        match self {
            Scalar::Text(text) => text,
            Scalar::Number(text) => text,
        }
    }
}

/// Looks pointers up in one feature. Members of `properties` are listed once, because nearly every pointer names one.
#[derive(Debug)]
pub struct Lookup<'a> {
    text: &'a str,
    properties: Vec<(Cow<'a, str>, Span)>,
}

/// Members that most events have room for without growing the list.
const MEMBERS_USUAL: usize = 12;

impl<'a> Lookup<'a> {
    /// For the feature `text` whose `properties` object, if it has one, stands at the span.
    pub fn new(text: &'a str, properties: Option<Span>) -> Result<Self, SyntaxError> {
        let mut members = Vec::new();
        if let Some(span) = properties.filter(|span| span.kind == Kind::Object) {
            members.reserve(MEMBERS_USUAL);
            Scanner::at(text, span.start).object(|scanner, name| {
                members.push((unescape(name.of(text)), scanner.value()?));
                Ok::<(), SyntaxError>(())
            })?;
        }
        Ok(Self { text, properties: members })
    }

    /// The value at a pointer, if it is a number or a string that is not empty. Of members with one name the last
    /// one counts, as for most readers.
    pub fn scalar(&self, pointer: &Pointer) -> Option<Scalar<'a>> {
        let span = match pointer.tokens() {
            [first, rest @ ..] if first == "properties" && !rest.is_empty() => {
                let (_, span) = self.properties.iter().rfind(|(name, _)| *name == rest[0])?;
                descend(self.text, *span, &rest[1..])?
            }
            tokens => {
                let whole = Scanner::new(self.text).value().ok()?;
                descend(self.text, whole, tokens)?
            }
        };
        match span.kind {
            Kind::Number => Some(Scalar::Number(span.of(self.text))),
            Kind::String => Some(Scalar::Text(unescape(span.of(self.text))))
                .filter(|scalar| !scalar.as_str().trim().is_empty()),
            _ => None,
        }
    }

    /// The first of `pointers` that leads to a scalar.
    pub fn first(&self, pointers: &[Pointer]) -> Option<Scalar<'a>> {
        pointers.iter().find_map(|pointer| self.scalar(pointer))
    }
}

fn descend(text: &str, from: Span, tokens: &[String]) -> Option<Span> {
    let mut at = from;
    for token in tokens {
        let mut found = None;
        let mut scanner = Scanner::at(text, at.start);
        let walked = match at.kind {
            Kind::Object => scanner.object(|scanner, name| {
                let value = scanner.value()?;
                if unescape(name.of(text)) == token.as_str() {
                    found = Some(value);
                }
                Ok::<(), SyntaxError>(())
            }),
            Kind::Array => {
                let mut index = 0_usize;
                scanner.array(|scanner| {
                    let value = scanner.value()?;
                    if index.to_string() == *token {
                        found = Some(value);
                    }
                    index += 1;
                    Ok::<(), SyntaxError>(())
                })
            }
            _ => return None,
        };
        walked.ok()?;
        at = found?;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, pointer: &str) -> Option<String> {
        let mut properties = None;
        Scanner::new(text)
            .object(|scanner, name| {
                let value = scanner.value()?;
                if name.of(text) == "\"properties\"" {
                    properties = Some(value);
                }
                Ok::<(), SyntaxError>(())
            })
            .unwrap();
        let lookup = Lookup::new(text, properties).unwrap();
        lookup.scalar(&pointer.parse().unwrap()).map(|scalar| scalar.as_str().to_owned())
    }

    #[test]
    fn pointers_lead_to_scalars_only() {
        let text = r#"{"id":7,"properties":{"a":"x","a/b":1.50,"m~":{"deep":[{"t":"y"}]},"e":"","n":null,"o":{},"d":1,"d":2},"when":{"t":"z"}}"#;
        for (pointer, want) in [
            ("/id", Some("7")),
            ("/properties/a", Some("x")),
            ("/properties/a~1b", Some("1.50")),
            ("/properties/m~0/deep/0/t", Some("y")),
            ("/properties/d", Some("2")),
            ("/when/t", Some("z")),
            ("/properties/e", None),
            ("/properties/n", None),
            ("/properties/o", None),
            ("/properties/a/b", None),
            ("/properties", None),
            ("/absent/x", None),
        ] {
            assert_eq!(at(text, pointer).as_deref(), want, "{pointer}");
        }
        assert_eq!("properties/a".parse::<Pointer>(), Err(PointerError::NoSlash));
        assert_eq!("/a~2".parse::<Pointer>(), Err(PointerError::Tilde));
    }
}
