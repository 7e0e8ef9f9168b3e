//! Which names and values are secrets: one rule, so that what `hermesctl` moves out of sight is what hermesd
//! masks and warns of.
//!
//! Pure. May not touch: any value beyond looking at it.

/// Beginnings of keys that services hand out.
const KEYS: &[&str] = &[
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "sk-ant-",
    "sk-proj-",
    "sk_live_",
    "rk_live_",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "AIza",
    "AKIA",
    "npm_",
    "hf_",
    "pypi-",
    "dop_v1_",
    "eyJhbGciOi",
];

/// Fewest characters of a key that is known by its beginning.
const SHORTEST_KEY: usize = 16;

/// Whether a variable, env or header name says that its value is a secret
/// (product: key, token, secret, pass, pat, auth, cred).
pub fn name_says_secret(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let says = ["key", "token", "secret", "passw", "passphrase", "auth", "cred"];
    says.iter().any(|word| lower.contains(word))
        // As words of their own only: PATH, PATTERN and BYPASS are none.
        || lower.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == "pat" || word == "pass")
}

/// Whether a value under a secret-sounding name is worth masking: at least 8 characters and no
/// path, boolean or number.
pub fn value_is_secret(value: &str) -> bool {
    let is_path = value.starts_with('/') || value.starts_with("~/") || value.starts_with("./");
    let is_number = value.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | '_'));
    value.chars().count() >= 8 && !is_path && !is_number && !matches!(value, "disabled")
}

/// Whether a value is a key by its looks, whatever its name.
pub fn is_known_key(value: &str) -> bool {
    value.len() >= SHORTEST_KEY && KEYS.iter().any(|start| value.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_say_secret_and_names_that_only_look_like_it() {
        for name in [
            "GITHUB_TOKEN",
            "api-key",
            "Authorization",
            "DB_PASSWORD",
            "GITHUB_PAT",
            "MY_PASS",
            "AWS_CREDENTIALS",
        ] {
            assert!(name_says_secret(name), "{name}");
        }
        for name in ["PATH", "PATTERN", "BYPASS", "LANG", "PASSIVE"] {
            assert!(!name_says_secret(name), "{name}");
        }
    }

    #[test]
    fn paths_numbers_and_short_values_are_no_secrets() {
        for value in ["/home/u/key.pem", "true", "12345678901", "short"] {
            assert!(!value_is_secret(value), "{value}");
        }
        assert!(value_is_secret("abcdefgh"));
    }

    #[test]
    fn keys_are_known_by_their_beginning_and_length() {
        assert!(is_known_key("ghp_0123456789abcdef"));
        assert!(!is_known_key("ghp_short") && !is_known_key("task-force-of-many-words"));
    }
}
