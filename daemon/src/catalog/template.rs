//! Whether a URI may come from a URI template.
//!
//! Pure. RFC 6570, section 3: an expression expands to any text, an empty one too; what stands between
//! expressions is literal.

/// How many characters of `template` stand literally in `uri`; `None`: it cannot come from it.
///
/// A template without a literal beginning says nothing about its server and fits nothing.
pub(super) fn fits(template: &str, uri: &str) -> Option<usize> {
    let literals = literals(template);
    let (first, rest) = literals.split_first()?;
    let mut left = uri.strip_prefix(first).filter(|_| !first.is_empty())?;
    let Some((last, middle)) = rest.split_last() else {
        // No expression at all.
        return left.is_empty().then_some(first.len());
    };
    left = left.strip_suffix(last)?;
    for literal in middle {
        left = &left[left.find(literal)? + literal.len()..];
    }
    Some(literals.iter().map(|literal| literal.len()).sum())
}

/// What stands before, between and behind the expressions.
fn literals(template: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let mut rest = template;
    while let Some((literal, after)) = rest.split_once('{') {
        // An expression that never ends is literal.
        let Some((_, behind)) = after.split_once('}') else { break };
        all.push(literal);
        rest = behind;
    }
    all.push(rest);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn literals_must_stand_in_their_order() {
        assert_eq!(fits("row://{id}", "row://7"), Some(6));
        assert_eq!(fits("row://{id}/x", "row://7/x"), Some(8));
        assert_eq!(fits("row://{id}/x", "row://7/y"), None);
        assert_eq!(fits("a://{x}/mid/{y}", "a://1/mid/2"), Some(9));
        assert_eq!(fits("a://{x}/mid/{y}", "a://1/2"), None);
        assert_eq!(fits("a://b", "a://b"), Some(5));
        assert_eq!(fits("a://b", "a://bc"), None);
        assert_eq!(fits("{whole}", "a://b"), None);
        assert_eq!(fits("a://{x}b{y}b", "a://b"), None, "no character serves twice");
        assert_eq!(fits("a://{broken", "a://{broken"), Some(11));
    }

    proptest! {
        #[test]
        fn every_expansion_fits(
            head in "[a-z]{1,4}://", parts in proptest::collection::vec(("[a-z/]{0,3}", "[a-z0-9/]{0,4}"), 0..4), tail in "[a-z]{0,3}",
        ) {
            let (mut template, mut uri, mut length) = (head.clone(), head.clone(), head.len() + tail.len());
            for (literal, value) in parts {
                template.push_str(&format!("{literal}{{v}}"));
                uri.push_str(&format!("{literal}{value}"));
                length += literal.len();
            }
            template.push_str(&tail);
            uri.push_str(&tail);
            prop_assert_eq!(fits(&template, &uri), Some(length));
        }
    }
}
